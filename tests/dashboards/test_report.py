"""The tables of reports, from sweeps that were trained."""

import csv
import io
import re
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dashboards.paired import holm
from dashboards.report.collect import Row, Sample, costs, told
from dashboards.report.compare import best_rows, findings, paired
from dashboards.report.contents import curve, differences, effects, points, results
from dashboards.report.measures import measure
from dashboards.report.tables import Field, Table, as_csv, as_latex, as_markdown
from fedtext.errors import UserError
from sweeps.folder import RunFolder
from sweeps.places import PLAN
from sweeps.report import report
from tests.commands import Forked
from tests.loops import nonempty
from tests.reported import BASE, PRIVATE, read, records, trained


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of runs: whole, with mechanisms, broken off, of one run, and with the seed in its space."""
    home = tmp_path_factory.mktemp("reports")
    trained(home / "runs" / "small", BASE)
    trained(home / "runs" / "private", PRIVATE)
    left = ["03-kteps-seed0", "03-kteps-seed1"]
    trained(home / "runs" / "broken", BASE, failed=["01-fedavg-seed1"], left=left)
    alone = {key: value for key, value in BASE.items() if key not in ("space", "baselines", "seeds")}
    trained(home / "runs" / "one", alone, command="run")
    trained(home / "runs" / "seeds", alone | {"space": {"seed": {"grid": [0, 1]}}})
    return home


@pytest.fixture
def at(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDTEXT_HOME", str(home))
    return home / "runs"


def table(run: Path, name: str) -> list[dict[str, str]]:
    with open(run / "report" / "tables" / f"{name}.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_means_and_deviations_are_those_of_the_records(at: Path) -> None:
    report("small")
    rows = table(at / "small", "results")
    assert len(rows) == 4
    line = next(row for row in rows if row["lambda1"] == "0.1")
    found = [records(at / "small", f"03-kteps-seed{seed}")[-1]["metrics"]["Ap"] for seed in (0, 1)]
    assert float(line["Ap (%)"]) == pytest.approx(100 * statistics.fmean(found), rel=1e-9)
    assert float(line["Ap (%) sd"]) == pytest.approx(100 * statistics.stdev(found), rel=1e-9)
    assert line["seeds"] == "2"
    clients = table(at / "small", "clients-Ap")
    assert len(clients) == 3
    one = [records(at / "small", f"01-fedavg-seed{seed}")[-1]["clients"][clients[0]["client"]]["Ap"] for seed in (0, 1)]
    assert float(clients[0]["fedavg (baseline)"]) == pytest.approx(100 * statistics.fmean(one), rel=1e-9)


def test_costs_are_sums_over_rounds(at: Path) -> None:
    report("small")
    line = next(row for row in table(at / "small", "costs") if row["method"] == "fedavg (baseline)")
    sent = [r["metrics"]["bytes_up"] for seed in (0, 1) for r in records(at / "small", f"01-fedavg-seed{seed}")]
    assert len(sent) == 6
    assert float(line["bytes up"]) == pytest.approx(sum(sent) / 2)
    spent = [
        sum(record["metrics"]["train_cpu_seconds"] for record in records(at / "small", f"01-fedavg-seed{seed}"))
        for seed in (0, 1)
    ]
    assert float(line["CPU time"]) == pytest.approx(statistics.fmean(spent), rel=1e-9)
    assert float(line["rounds"]) == 3


def row(label: str, *values: float, seeds: int = 2) -> Row:
    made = [Sample(label, seed, "finished", (), {"Ag": value, "loss": value}) for seed, value in enumerate(values)]
    missing = [Sample(label, seed, "failed") for seed in range(len(values), seeds)]
    return Row(label, label, label, False, {}, {}, (*made, *missing))


def test_differences_are_paired_by_seed_and_corrected_for_their_number() -> None:
    first, *others = rows = [row("a", 0.5, 0.6, 0.4), row("b", 0.55, 0.7, 0.47), row("c", 0.1, 0.9, 0.3)]
    found = paired(rows, first, measure("Ag"))
    assert [one.row.id for one in found] == ["b", "c"]
    assert [one.difference.mean for one in found] == pytest.approx([100 * 0.22 / 3, 100 * -0.2 / 3])
    assert [one.seeds for one in found] == [3, 3]
    raw = [
        float(stats.ttest_rel(*(list(each.by_seed("Ag").values()) for each in (one, first))).pvalue) for one in others
    ]
    assert [one.difference.p for one in found] == pytest.approx(holm(raw))
    assert found[0].difference.p == pytest.approx(2 * raw[0])


def test_differences_from_a_chosen_row_are_corrected_for_all_pairs_it_could_have_been_in() -> None:
    rng = np.random.default_rng(0)
    cases = [row(name, *values) for name, values in zip("abcd", rng.normal(0.8, 0.01, (4, 5)), strict=True)]
    baseline = replace(row("base", *rng.normal(0.8, 0.01, 5)), baseline=True)
    first, of = best_rows(cases, measure("Ag"))[0], measure("Ag")
    raw = [one.difference.p for one in (paired([first, other], first, of)[0] for other in cases if other is not first)]
    found = [one.difference.p for one in paired(cases, first, of, chosen=True)]
    assert found == pytest.approx(holm(raw, 6)), "pairs of four cases"
    assert min(found) == pytest.approx(min(1, 6 * min(raw)))
    beside = paired([*cases, baseline], first, of, chosen=True)
    assert [one.difference.p for one in beside] == pytest.approx(holm([*raw, _p(baseline, first)], 10)), "four more"
    alone = paired([cases[0], baseline], cases[0], of, chosen=True)
    assert alone[0].difference.p == pytest.approx(_p(baseline, cases[0])), "of one case nothing was chosen"


def _p(one: Row, other: Row) -> float:
    return float(stats.ttest_rel(*(list(each.by_seed("Ag").values()) for each in (one, other))).pvalue)


def test_rows_that_are_equal_in_truth_seldom_differ_significantly_from_the_winner() -> None:
    """In 400 reports on ten equal cases with five seeds: 5 % at most, and the deviation is 1.1 %."""
    rng, of, wrong = np.random.default_rng(1), measure("Ag"), 0
    for values in nonempty(rng.normal(0.8, 0.01, (400, 10, 5))):
        rows = [row(str(number), *each, seeds=5) for number, each in enumerate(values)]
        winner = rows[int(values.mean(1).argmax())]
        wrong += any(one.difference.p < 0.05 for one in paired(rows, winner, of, chosen=True))
    assert wrong <= 0.05 * 400


def test_holm_is_as_in_its_paper() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.01, 0.04], tests=5) == pytest.approx([0.05, 0.16]), "two of five tests"
    assert holm([]) == []


def test_differences_take_the_seeds_that_both_rows_have(at: Path) -> None:
    sweep = read(at / "broken")
    one = next(one for one in paired(sweep.rows, sweep.winner, measure("Ag")) if one.row.method == "fedavg")
    assert one.seeds == 1
    assert one.difference.p is None
    assert one.difference.mean == pytest.approx(100 * (one.row.by_seed("Ag")[0] - sweep.winner.by_seed("Ag")[0]))


def test_the_best_is_of_rows_without_missing_seeds_and_of_metrics_that_can_be_compared() -> None:
    rows = [row("a", 0.5, 0.6), row("b", 0.9), row("c", 0.5, 0.6), row("d", 0.1, 0.2)]
    assert [one.id for one in best_rows(rows, measure("Ag"))] == ["a", "c"]
    assert best_rows(rows, measure("loss")) == []
    close = [row("a", 0.1, 0.2), row("b", 0.15, 0.15), row("c", 0.15, 0.14999)]
    assert close[0].spread("Ag") != close[1].spread("Ag")
    assert [one.id for one in best_rows(close, measure("Ag"))] == ["a", "b"]
    assert best_rows(rows[:1], measure("Ag")) == []
    less = replace(measure("Ag"), unit=replace(measure("Ag").unit, less=True))
    assert [one.id for one in best_rows(rows, less)] == ["d"]


def test_findings_name_the_best_case_the_next_one_and_the_baselines(at: Path) -> None:
    sweep = read(at / "small")
    first, *others = findings(sweep)
    assert first.startswith(f"{sweep.winner.label} has the highest Ap_val of the space: ")
    assert first.endswith("% (mean ± standard deviation of 2 seeds).")
    assert [word for sentence in others for word in ("local_only (baseline)", "fedavg (baseline)") if word in sentence]
    assert len(others) == 4
    assert re.fullmatch(r"On test texts it has Ap \d+\.\d ± \d+\.\d %\.", others[0])
    assert all(nonempty(" Ap_val" in sentence for sentence in others[1:])), "of which metric a difference is"
    leads = [sentence for sentence in others[1:] if " ± " in sentence]
    assert "(± standard error" in leads[0]
    assert sum("standard error" in sentence for sentence in leads) == 1, "where it first occurs"
    assert findings(read(at / "one"))[0].startswith("kteps reached Ap_val: ")
    empty = replace(read(at / "one"), outcomes={})
    assert findings(empty) == ["No trial of the space has ended with Ap_val, so that nothing can be compared yet."]


def test_trials_without_a_common_seed_are_reported_without_paired_differences(at: Path) -> None:
    files = report("seeds")
    assert all(file.is_file() for file in nonempty(files))
    assert findings(read(at / "seeds"))[-1] == "No other trial has its seed: there are no paired differences."


def test_a_sweep_that_has_not_ended_is_reported_as_far_as_it_has_come(at: Path) -> None:
    files = report("broken")
    assert all(file.is_file() for file in nonempty(files))
    status = {row["method"] + row["lambda1"]: row["status"] for row in table(at / "broken", "results")}
    assert status["kteps0.1"] == "not ended"
    assert status["fedavg (baseline)"] == "1 finished, 1 failed"
    line = next(row for row in table(at / "broken", "results") if row["lambda1"] == "0.1")
    assert line["Ag (%)"] == "", "values after one round of three are no result"
    sweep = read(at / "broken")
    assert [len(records) for records in sweep.left.values()] == [1, 1]
    assert effects(sweep) is None, "one value of lambda1 alone has results"


def test_a_damaged_checkpoint_is_a_problem_and_not_the_end(at: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "runs" / "hurt", BASE | {"seeds": 1})
    for state in nonempty((run / "01-fedavg" / "checkpoint").glob("round-*/state.json")):
        state.write_text("{}")
    sweep = read(run)
    assert len(sweep.problems) == 1
    assert "01-fedavg cannot be read" in sweep.problems[0]
    assert sum(bool(row.ended) for row in sweep.rows) == 3


def test_single_runs_have_no_differences_and_no_effects(at: Path) -> None:
    names = {file.name for file in report("one") if file.suffix == ".csv"}
    assert names == {"results.csv", "costs.csv", "clients-Ag.csv", "clients-Ap.csv"}
    assert differences(read(at / "one")) is None


def test_effects_pool_all_trials_of_a_value(at: Path) -> None:
    report("private")
    rows = table(at / "private", "effects")
    assert [(row["key"], row["value"]) for row in rows] == [
        ("uplink", "none"),
        ("uplink", "clip(norm=0.5) + gaussian(sigma=0.5)"),
        ("training.optimizer.lr", "0.01"),
        ("training.optimizer.lr", "0.1"),
    ]
    ids = [name for name in ("01", "02") for name in (f"{name}-fedavg-seed0", f"{name}-fedavg-seed1")]
    found = [records(at / "private", name)[-1]["metrics"]["Ag"] for name in ids]
    those = points(read(at / "private"), "uplink")["none"]
    assert {sample.case_id for one in those for sample in one.samples} == set(ids)
    assert float(rows[0]["Ag (%)"]) == pytest.approx(100 * statistics.fmean(found))
    assert rows[0]["trials"] == "4"


def test_the_claimed_epsilon_and_the_ledger_are_those_of_the_run(at: Path) -> None:
    sweep = read(at / "private")
    noisy = next(one for one in sweep.rows if "gaussian" in one.label)
    last = records(at / "private", noisy.samples[0].case_id)[-1]["metrics"]
    assert noisy.by_seed("epsilon")[0] == last["epsilon"]
    assert any("epsilon = " in sentence for sentence in noisy.reveals())
    local = next(one for one in sweep.rows if one.method == "local_only")
    assert local.by_seed("epsilon") == {}
    assert [entry.how for entry in local.ledger] == ["no guarantee is needed for updates: none is sent"]


def test_curves_leave_out_rounds_that_some_seed_lacks() -> None:
    found = curve([{1: 1.0, 2: 2.0, 3: 9.0}, {1: 3.0, 2: 2.0}])
    assert {round_: (one.mean, one.count) for round_, one in found.items()} == {1: (2.0, 2), 2: (2.0, 2)}
    assert curve([]) == {}


def test_costs_that_some_round_does_not_report_are_left_out(at: Path) -> None:
    rounds = list(read(at / "one").rows[0].samples[0].records)
    assert {"CPU time", "bytes up", "rounds"} <= set(dict(costs(rounds)))
    del rounds[1].metrics["train_cpu_seconds"]
    assert "CPU time" not in dict(costs(rounds))
    assert "GPU time" not in dict(costs(rounds))
    for record, spent in zip(rounds, (1.5, 2.0, 3.0), strict=False):
        record.metrics["train_gpu_seconds"] = spent
    assert dict(costs(rounds))["GPU time"] == sum((1.5, 2.0, 3.0)[: len(rounds)])
    assert dict(costs([])) == {}


def test_a_difference_of_nothing_has_no_sign() -> None:
    assert [measure("Ag").signed(value) for value in (0.04, -0.04, 0.0, 12.5, -0.1)] == [
        *("0.0", "0.0", "0.0", "+12.5", "−0.1")
    ]


def test_values_of_keys_are_told_in_few_words() -> None:
    assert told([{"clip": {"norm": 0.5}}, {"gaussian": {"sigma": 0.01}}]) == "clip(norm=0.5) + gaussian(sigma=0.01)"
    assert told({"name": "fedprox", "mu": 0.1}) == "fedprox(mu=0.1)"
    assert [told(value) for value in ([], 0.30000000000000004, "a\nb", True)] == ["none", "0.3", "a b", "True"]


HOSTILE = Table(
    "odd",
    "50% of $x_1 & <script>",
    ["a|b", "=1+1", "n"],
    [[Field("\\x{y}~^#"), Field("=cmd()"), Field("1.0 ± 0.2", {"": 1.04, "sd": 0.21}, strong=True)]],
)


def test_latex_is_escaped_and_has_booktabs() -> None:
    text = as_latex(HOSTILE)
    assert r"\caption{50\% of \$x\_1 \& \textless{}script\textgreater{}}" in text
    assert r"a\textbar{}b & =1+1 & n \\" in text
    assert r"\textbackslash{}x\{y\}\textasciitilde{}\textasciicircum{}\# & =cmd() & \textbf{1.0 $\pm$ 0.2} \\" in text
    assert r"\begin{tabular}{llr}" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert "{" not in re.sub(r"\\[{}]", "", text).replace("{", "(", text.count("}"))  # as many open as close


def test_a_cell_is_no_argument_of_the_line_before_it() -> None:
    """As ``[deleted]``, a frequent author: LaTeX would take it for the height of the line's end."""
    odd = [
        [Field("[deleted]"), Field("[b]")],
        [Field("*star"), Field("a\nb")],
        [Field("[best]", strong=True), Field("")],
    ]
    text = as_latex(Table("odd", "Odd", ["[x]", "y"], odd))
    assert "\\toprule\n    {}[x] & y \\\\\n    \\midrule\n    {}[deleted] & [b] \\\\\n    {}*star & a b \\\\\n" in text
    assert "    \\textbf{[best]} &  \\\\\n" in text


@pytest.mark.parametrize(
    "text", ["=1+1", "-2+3+cmd|' /C calc'!A0", "-1+2", "@SUM(A1)", "+1", "-inf", "\r=1+1", "\t=1", "-1 2"]
)
def test_no_text_of_a_csv_is_a_formula(text: str) -> None:
    ((_,), (cell,)) = csv.reader(io.StringIO(as_csv(Table("odd", "Odd", ["n"], [[Field(text)]]))))
    assert cell == f"'{text.strip()}"


@pytest.mark.parametrize("text", ["-", "-1", "-12.5", "-1e-05", "a-b", "1+1", ""])
def test_other_texts_of_a_csv_stay(text: str) -> None:
    ((_, _), (cell, _)) = csv.reader(io.StringIO(as_csv(Table("odd", "Odd", ["n", "m"], [[Field(text), Field("b")]]))))
    assert cell == text


def test_csv_has_numbers_and_no_formulas_and_markdown_no_html() -> None:
    assert as_csv(HOSTILE) == "a|b,'=1+1,n,n sd\n\\x{y}~^#,'=cmd(),1.04,0.21\n"
    text = as_markdown(HOSTILE)
    assert "<" not in text
    assert r"| a\|b | =1+1 | n |" in text
    assert "| --- | --- | ---: |" in text
    assert "**1.0 ± 0.2**" in text


def test_tables_mark_the_best_and_say_how_they_are_sorted(at: Path) -> None:
    report("small")
    made = results(read(at / "small"))
    assert any(one.strong for row in made.rows for one in row)
    assert made.notes[0].startswith("Sorted by Ap_val (highest first)")
    text = (at / "small" / "report" / "tables" / "results.tex").read_text()
    assert r"\textbf{" in text
    assert "fedavg (baseline)" in text


def test_tables_of_an_earlier_report_are_removed(at: Path) -> None:
    report("one")
    tables = at / "one" / "report" / "tables"
    (tables / "clients-Gone.csv").write_text("")
    (tables / "mine.txt").write_text("kept")
    report("one")
    assert not (tables / "clients-Gone.csv").exists()
    assert (tables / "mine.txt").read_text() == "kept"


def test_a_run_keeps_the_versions_that_worked_on_it(at: Path) -> None:
    folder = RunFolder.found(at, "small", "report")
    (first,) = folder.versions()
    assert set(first) >= {"version.python", "version.torch"}
    sweep = read(at / "small")
    assert sweep.commands["continue"] == "python -m platform.sweep --resume small"
    assert sweep.commands["repeat"].endswith("/small/experiment.yaml")
    assert sweep.commands["report"] == "python -m platform.report small"


def test_mistakes_are_one_sentence(at: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^report: there is no run gone in .*runs; the latest there are .*one"):
        report("gone")
    (tmp_path / PLAN).write_text('{"content": {}}')
    with pytest.raises(UserError, match=r"platform\.reproduce, which began it, writes its own tables"):
        report(str(tmp_path))


def test_the_command_writes_the_tables_and_refuses_what_is_no_run(home: Path) -> None:
    done = Forked(home, "report", str(home / "runs" / "small")).wait()
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\S*/report/report.html, and 18 files of tables in \S*/report/tables\n", done.stdout)
    done = Forked(home, "report", "gone").wait()
    assert done.returncode == 2
    assert done.stderr.startswith("error: report: there is no run gone in ")
    assert done.stderr.count("\n") == 1
    done = Forked(home, "report").wait()
    assert done.returncode == 2
    assert "the following arguments are required: SWEEP" in done.stderr
