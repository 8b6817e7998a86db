"""The final table of trials."""

import io
import math
import re
from dataclasses import replace

import pytest

from dashboards.live import LiveProgress
from dashboards.progress import progress
from dashboards.table import best, notes, print_table, rank
from dashboards.trial import Outcome
from tests.loops import nonempty
from tests.planned import Planned, experiment, kteps, row, rows


def outcomes_of_a_sweep() -> tuple[list[Planned], dict[str, Outcome]]:
    cases = [
        Planned("00-fedavg", "fedavg", True, experiment("fedavg")),
        kteps(1, 0.0),
        kteps(2, 0.01),
        kteps(3, 0.1),
        kteps(4, 1.0),
    ]
    return cases, {
        "00-fedavg": Outcome("finished", tuple(rows(3, level=0.9))),
        "01-kteps": Outcome("finished", tuple(rows(3, level=0.6))),
        "02-kteps": Outcome("finished", tuple(rows(3, level=0.8))),
        "03-kteps": Outcome("failed", tuple(rows(1)), "client dvd failed in round 2: its loss is not finite"),
        "04-kteps": Outcome("stopped", (row(1, loss=float("nan")),)),
    }


def test_the_table_is_sorted_marks_baselines_and_ends_with_failures() -> None:
    cases, outcomes = outcomes_of_a_sweep()
    order = [case.id for case in rank(cases, outcomes, "Ap_val", "max")]
    assert order == ["00-fedavg", "02-kteps", "01-kteps", "04-kteps", "03-kteps"]
    assert [case.id for case in rank(cases, outcomes, "loss", "min")][-2:] == ["04-kteps", "03-kteps"]
    winner = best(cases, outcomes, "Ap_val", "max")
    assert winner is not None
    assert winner.id == "02-kteps"  # a baseline is no candidate
    assert best(cases[3:], outcomes, "Ap_val", "max") is None
    out = io.StringIO()
    print_table(cases, outcomes, "Ap_val", "max", out)
    text = out.getvalue().splitlines()
    assert text[0].split() == [
        *("#", "trial", "method", "lambda1", "Ag", "Ap", "Ap_val", "loss"),
        *("bytes/client/round", "s/round", "rounds", "status"),
    ]
    assert text[2].split()[:8] == ["1", "00-fedavg", "(baseline)", "fedavg", "-", "93.0", "95.0", "93.0"]
    assert text[3].split() == [
        *("2", "02-kteps", "kteps", "0.01", "83.0", "85.0", "83.0", "0.167"),
        *("5.0", "MB", "4.10", "3/3", "finished"),
    ]
    assert text[6].split()[0] == "-"
    assert text[7] == "03-kteps lambda1=0.1 failed: client dvd failed in round 2: its loss is not finite"
    assert [line.partition(":")[0] for line in text[8:12]] == ["Ag", "Ap", "loss", "..._val"]
    assert text[9] == "Ap: accuracy of each client's personalised model on its own texts, mean over clients"


def test_the_metric_by_which_a_table_is_sorted_stands_in_it() -> None:
    """Also where other tables leave it out, as the bits of validation texts, and those of word counts."""
    last = row(1)
    bits = {"perplexity": 9.0, "bits_per_byte": 1.8, "bits_per_byte_val": 1.7, "bits_per_byte_unigram_val": 1.9}
    outcome = Outcome("finished", (replace(last, metrics=last.metrics | bits),))
    out = io.StringIO()
    print_table([kteps(1, 0.0)], {"01-kteps": outcome}, "bits_per_byte_val", "min", out)
    header, _, trial, unigram, *_ = out.getvalue().splitlines()
    assert "bits_per_byte_val" in header.split()
    assert "1.700" in trial.split()
    assert "1.900" in unigram.split()
    print_table([kteps(1, 0.0)], {"01-kteps": outcome}, "perplexity", "min", out := io.StringIO())
    assert "bits_per_byte_val" not in out.getvalue().splitlines()[0].split()


def test_what_each_client_has_stands_in_the_table_and_leads_it() -> None:
    cases, outcomes = outcomes_of_a_sweep()
    figures = {"Ap_0": 0.3, "Local": 0.4, "Global": 0.5, "Local_p10": 0.1, "Global_geometric": 0.4, "rows_recall": 0.9}
    outcomes["02-kteps"] = Outcome("finished", (row(3, **figures),))
    assert rank(cases, outcomes, "Local", "max")[0].id == "02-kteps"
    out = io.StringIO()
    print_table(cases, outcomes, "Local", "max", out)
    head, _, first = out.getvalue().splitlines()[:3]
    shown = dict(zip(head.split(), first.split(), strict=False))
    assert {name: shown[name] for name in ("Local", "Global", "Local_p10", "Ap_0", "rows_recall")} == {
        "Local": "40.0", "Global": "50.0", "Local_p10": "10.0", "Ap_0": "30.0", "rows_recall": "90.0"
    }  # fmt: skip
    assert "Global_geometric" not in head


def test_what_leaks_stands_beside_what_is_learned() -> None:
    cases, outcomes = outcomes_of_a_sweep()
    leaks = {"inversion_public_ptlr": 0.875, "label_top": 1.0, "inversion_distance": 0.01, "label_l1": 0.3}
    outcomes["02-kteps"] = Outcome("finished", (row(3, Local=0.4, **leaks),))
    out = io.StringIO()
    print_table(cases, outcomes, "Local", "max", out)
    head, _, first = out.getvalue().splitlines()[:3]
    shown = dict(zip(head.split(), first.replace("(baseline)", "").split(), strict=False))
    assert {name: shown[name] for name in ("Local", "inversion_public_ptlr", "label_top")} == {
        "Local": "40.0", "inversion_public_ptlr": "87.5", "label_top": "100.0"
    }  # fmt: skip
    assert "inversion_distance" not in head
    assert "label_l1" not in head


def test_what_trials_have_spent_stands_in_the_table_beside_a_swept_epsilon() -> None:
    key = "uplink.1.randomized_response.epsilon"
    cases = [replace(kteps(n, 0.0), overrides={key: n}) for n in (1, 2)]
    outcomes = {case.id: Outcome("finished", (row(3, epsilon=5_864_446.9, delta=1e-5),)) for case in cases[:1]}
    outcomes[cases[1].id] = Outcome("finished", (row(3),))
    out = io.StringIO()
    print_table(cases, outcomes, "Ag", "max", out)
    header, _, first, second, *_ = out.getvalue().splitlines()
    assert header.split()[3:8] == [key, "Ag", "epsilon", "delta", "loss"]
    assert first.split()[3:7] == ["1", "73.0", "5,864,447", "1e-05"]
    assert second.split()[3:7] == ["2", "73.0", "-", "-"]
    assert "delta: probability with which the bound epsilon may fail" in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(
    width: int, cases: list[Planned], outcomes: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Return the lines of the table, sorted by Ap_val, on a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    print_table(cases, outcomes, "Ap_val", "max", out)
    assert isinstance(progress([], out), LiveProgress)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


def test_a_narrow_terminal_leaves_out_what_matters_least(monkeypatch: pytest.MonkeyPatch) -> None:
    text = on_a_terminal(70, *outcomes_of_a_sweep(), monkeypatch)
    assert text[0].split() == ["#", "trial", "lambda1", "Ag", "Ap", "Ap_val", "status"]
    assert text[2].split() == ["2", "02-kteps", "0.01", "83.0", "85.0", "83.0", "finished"]
    assert text[6].endswith("too narrow: method, loss, bytes/client/round, s/round, rounds")


def test_before_a_trial_has_ended_there_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    cases, _ = outcomes_of_a_sweep()
    out = io.StringIO()
    print_table(cases, {}, "Ap_val", "max", out)
    assert out.getvalue() == "No trial has ended.\n"
    assert on_a_terminal(60, cases, {}, monkeypatch) == ["No trial has ended."]


def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    cases, outcomes = outcomes_of_a_sweep()
    more = {"AUC": 0.9, "AUC_val": 0.9, "Ag_val": 0.8, "epsilon": 1.5, "delta": 1e-5}
    outcomes["02-kteps"] = Outcome("finished", (row(1, last=True, **more),))
    text = on_a_terminal(67, cases, outcomes, monkeypatch)
    assert text[0].split() == ["#", "trial", "lambda1", "Ap_val", "epsilon", "delta", "status"]
    assert "00-fedavg (baselin…" in text[1]
    assert "    1.5  1e-05  finished" in text[2], "numbers end below the names of their columns"
    assert all("…" not in line[text[0].index("lambda1") :] and len(line) <= 67 for line in nonempty(text[:6]))
    assert text[2].split() == ["2", "02-kteps", "0.01", "71.0", "1.5", "1e-05", "finished"]


def test_suggested_values_are_rounded_as_in_the_names_of_trials() -> None:
    cases, outcomes = outcomes_of_a_sweep()
    cases[2] = replace(
        cases[2], overrides={"method.lambda1": 0.7190902612167306, "method.lambda2": [0.12345678912, "a"]}
    )
    out = io.StringIO()
    print_table(cases, outcomes, "Ap_val", "max", out)
    assert re.search(r" 02-kteps +kteps +0\.7191  0=0\.1235 1=a ", out.getvalue())


def test_a_swept_method_has_one_column_which_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cases, outcomes = outcomes_of_a_sweep()
    cases[1:] = [replace(case, overrides={"method": "kteps"}) for case in cases[1:]]
    text = on_a_terminal(60, cases, outcomes, monkeypatch)
    assert text[0].split()[:3] == ["#", "trial", "method"]
    assert text[0].split().count("method") == 1
    assert text[2].split()[:4] == ["2", "02-kteps", "kteps", "83.0"]
    assert " fedavg " in text[1], "a baseline has a method too"


def test_seeds_of_a_case_share_a_line_with_mean_and_deviation() -> None:
    cases = [Planned("00-fedavg", "fedavg", True, experiment("fedavg"))]
    cases += [replace(kteps(n, n / 100), id=f"{n:02d}-kteps-seed{seed}") for n in (1, 2) for seed in (0, 1, 2)]
    levels = {"00-fedavg": 0.8, "01-kteps-seed0": 0.60, "01-kteps-seed1": 0.70, "01-kteps-seed2": 0.65}
    outcomes = {case: Outcome("finished", tuple(rows(3, level=level))) for case, level in levels.items()}
    outcomes["02-kteps-seed0"] = Outcome("finished", tuple(rows(3, level=0.9)))
    slow = replace(row(1), metrics=row(1).metrics | {"round_seconds": 100.0, "bytes_up": 1e9})
    outcomes["02-kteps-seed1"] = Outcome("failed", (slow,), "no")
    out = io.StringIO()
    print_table(cases, outcomes, "Ap_val", "max", out)
    text = out.getvalue().splitlines()
    assert text[0].split()[3:6] == ["lambda1", "seeds", "Ag"]
    assert text[4].split()[1:] == [
        *("02-kteps", "kteps", "0.02", "1", "93.0", "95.0", "93.0", "0.167"),
        *("5.0", "MB", "4.10", "1/3", "1", "finished,", "1", "failed"),
    ]
    assert text[2].split()[1:7] == ["00-fedavg", "(baseline)", "fedavg", "-", "1", "83.0"]
    assert " 0.01      3  68.0 ± 5.0  70.0 ± 5.0  68.0 ± 5.0  0.167 ± 0.000 " in text[3]
    assert "02-kteps-seed1 lambda1=0.02 failed: no" in text
    assert text[-1].endswith(
        "Of several seeds: mean ± standard deviation. Cases that lack it for a seed come after those with all."
    )
    winner = best(cases, outcomes, "Ap_val", "max")
    assert winner is not None
    assert winner.id == "01-kteps", "of the other a seed failed"


@pytest.mark.parametrize("rest", [{}, {"seed1": math.inf, "seed2": math.inf}])
def test_a_case_without_a_value_for_every_seed_is_not_the_best(rest: dict[str, float]) -> None:
    """Its other seeds have not ended, or ended with an infinite perplexity: the mean of those left is biased."""
    cases = [replace(kteps(n, n / 100), id=f"{n:02d}-kteps-seed{seed}") for n in (1, 2) for seed in (0, 1, 2)]
    values = {f"01-kteps-seed{seed}": 100.0 for seed in (0, 1, 2)} | {"02-kteps-seed0": 90.0}
    values |= {f"02-kteps-{seed}": value for seed, value in rest.items()}
    outcomes = {
        case: Outcome("finished", (replace(rows(1)[0], metrics={"perplexity": value}),))
        for case, value in values.items()
    }
    winner = best(cases, outcomes, "perplexity", "min")
    assert winner is not None
    assert winner.id == "01-kteps"
    assert [group.id for group in rank(cases, outcomes, "perplexity", "min")] == ["01-kteps", "02-kteps"]


def test_sorting_by_a_test_metric_is_called_what_it_is() -> None:
    cases, outcomes = outcomes_of_a_sweep()
    assert len(notes(cases, outcomes, "Ap_val", "max")) == 1
    said = notes(cases, outcomes, "Ap", "max")[1]
    assert "selection on the test split" in said
    assert "tune.metric=Ap_val" in said
    assert "corpus.validation" in notes(cases, outcomes, "Ag", "max")[1]
    assert "not sorted" in notes(cases, outcomes, "AUC", "max")[0]
