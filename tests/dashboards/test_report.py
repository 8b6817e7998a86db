"""The tables of reports, from sweeps that were trained."""

import csv
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.report.collect import told
from dashboards.report.compare import findings, paired
from dashboards.report.contents import curve, differences, effects, points, results
from dashboards.report.costs import costs
from dashboards.report.measures import measure
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


def test_differences_take_the_seeds_that_both_rows_have(at: Path) -> None:
    sweep = read(at / "broken")
    one = next(one for one in paired(sweep.rows, sweep.winner, measure("Ag")) if one.row.method == "fedavg")
    assert one.seeds == 1
    assert one.difference.p is None
    assert one.difference.mean == pytest.approx(100 * (one.row.by_seed("Ag")[0] - sweep.winner.by_seed("Ag")[0]))


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


def test_values_of_keys_are_told_in_few_words() -> None:
    assert told([{"clip": {"norm": 0.5}}, {"gaussian": {"sigma": 0.01}}]) == "clip(norm=0.5) + gaussian(sigma=0.01)"
    assert told({"name": "fedprox", "mu": 0.1}) == "fedprox(mu=0.1)"
    assert [told(value) for value in ([], 0.30000000000000004, "a\nb", True)] == ["none", "0.3", "a b", "True"]


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
