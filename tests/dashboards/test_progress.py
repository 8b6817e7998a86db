"""The progress display and the final table."""

import io
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.tune.experiment import Trial
from rich.console import Console

from actors.waiting import Use
from dashboards.callback import TrialCallback
from dashboards.progress import LiveProgress, PlainProgress, progress
from dashboards.table import best, notes, print_table, rank
from dashboards.trial import Outcome, data_size, duration
from tests.loops import nonempty
from tests.planned import Planned, experiment, kteps, row, rows


def test_plain_progress_is_single_lines_with_what_matters() -> None:
    out, now = io.StringIO(), [0.0]
    case = kteps(3, 0.01, 10)
    with PlainProgress([case, kteps(4, 0.1, 10)], out, clock=lambda: now[0]) as display:
        display.start(case)
        for number in range(1, 11):
            now[0] += 0.4 if number < 10 else 0.01
            display.row(case.id, row(number, last=number == 10))
            display.row(case.id, row(number, last=number == 10))
        display.finish(case.id, "finished")
        display.start(kteps(4, 0.1, 10), rows(4, 10))
        display.finish("04-kteps", "failed", "client dvd failed:\x1b[31m\n its loss is not finite")
    text = out.getvalue()
    assert re.search(r"^03-kteps lambda1=0.01  started  10 rounds$", text, re.M)
    assert re.search(
        r"^03-kteps lambda1=0.01  round 4/10  loss 0.125  Ag 74.0  up 16.0 MB down 24 MB  4.1 s/round  ETA 25 s$",
        text,
        re.M,
    )
    assert re.findall(r"round (\d+)/10  loss", text) == ["1", "4", "7", "10"]  # one a second, and the last
    assert re.search(r"^03-kteps lambda1=0.01  round 10/10 .*Ag 80.0  Ap 82.0", text, re.M)
    assert "04-kteps lambda1=0.1  goes on after round 4/10" in text
    assert "04-kteps lambda1=0.1  failed after round 4/10: client dvd failed:[31m its loss is not finite" in text
    assert "2 of 2 trials done, 1 failed, " in text
    for name, first in (("Ag", "round 1/10"), ("Ap", "round 10/10")):  # explained once, before it first appears
        (explained,) = (place for place, line in enumerate(text.splitlines()) if line.startswith(f"{name}: accuracy"))
        assert first in text.splitlines()[explained + 1]
    assert all(nonempty(character.isprintable() for character in text.replace("\n", "")))


def test_live_progress_shows_every_trial_and_counts_those_without_room() -> None:
    cases = [kteps(number, 0.01, 10) for number in range(40)]
    display = LiveProgress(cases, Console(file=io.StringIO(), force_terminal=True, width=120, height=20, record=True))
    for number in range(1, 4):
        display.start(cases[30]) if number == 1 else None
        display.row("30-kteps", row(number))
    display.start(cases[39])
    display.finish("39-kteps", "failed", "a cause")
    display.restore(cases[0], rows(10, 10), "finished")
    display.console.print(display.render())
    text = display.console.export_text()
    assert re.search(r"30-kteps lambda1=0.01 +running +3/10 +0.167 +73.0 +30 MB +4.1 +29 s", text)
    assert re.search(r"39-kteps lambda1=0.01 +failed +0/10", text)
    assert "39-kteps lambda1=0.01 failed: a cause" in text
    assert re.search(r"00-kteps lambda1=0.01 +finished +10/10", text)
    assert "... and 27 more trials" in text
    assert "37 trials wait until a running trial ends" in text
    assert "Ag: accuracy of the shared model on each client's own texts, mean over clients" in text
    assert "2 of 40 trials done, 1 running, 1 failed" in text
    assert isinstance(progress(cases, io.StringIO()), PlainProgress)


USE = Use(nodes=2, cpus=3, all_cpus=4, gpus=1, all_gpus=2, store=12e6, all_store=2.1e9)


def shown(width: int, height: int = 24) -> tuple[LiveProgress, list[str]]:
    """A sweep with trials in every state on a screen, and its lines."""
    cases = [kteps(number, 0.01, 10) for number in range(6)]
    display = LiveProgress(cases, Console(file=io.StringIO(), force_terminal=True, width=width, height=height))
    display.start(cases[0])
    display.row("00-kteps", row(3, AUC=0.91))
    display.start(cases[1])
    display.finish("01-kteps", "failed", "client dvd failed in round 2: its loss is not finite")
    display.restore(cases[2], rows(10, 10), "finished")
    display.look(USE, "waiting for 2 CPUs (2 client actors of 1 CPU): 1 of 4 CPUs free on 2 nodes")
    display.console.print(display.render())
    return display, re.sub(r"\x1b\[[0-9;]*m", "", display.console.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def test_live_progress_says_what_waits_and_fails_and_how_the_cluster_is_used() -> None:
    _, lines = shown(120)
    assert lines[0].split() == ["trial", "state", "round", "loss", "Ag", "AUC", "bytes", "s/round", "ETA"]
    assert lines[-4:-1] == [
        "01-kteps lambda1=0.01 failed: client dvd failed in round 2: its loss is not finite",
        "3 trials wait: for 2 CPUs (2 client actors of 1 CPU): 1 of 4 CPUs free on 2 nodes",
        "cluster: 2 nodes, 3 of 4 CPUs, 1 of 2 GPUs, object store 12.0 MB of 2.1 GB",
    ]
    assert lines[-1].startswith("2 of 6 trials done, 1 running, 1 failed, ")


@pytest.mark.parametrize(("width", "columns"), [(80, ["loss", "Ag", "AUC", "ETA"]), (60, ["Ag", "ETA"]), (40, [])])
def test_a_narrow_screen_has_fewer_columns_and_no_line_is_too_long(width: int, columns: list[str]) -> None:
    _, lines = shown(width)
    assert lines[0].split()[:3] == ["trial", "state", "round"]
    assert set(columns) <= set(lines[0].split())
    assert "bytes" not in lines[0]
    assert not any(nonempty("…" in line[18:] for line in lines[:7])), "names of trials are cut, and nothing else"
    assert all(nonempty(len(line) <= width for line in lines))
    for state in ("running", "failed", "finished", "waiting"):
        assert any(line.split()[-1] == state or f" {state} " in line for line in lines), state


def test_a_low_screen_keeps_failures_and_the_summary() -> None:
    _, lines = shown(100, height=11)
    assert len(lines) <= 10
    assert any("01-kteps lambda1=0.01 failed: " in line for line in lines)
    assert lines[-1].startswith("2 of 6 trials done")
    assert not any(nonempty(line.startswith("Ag: ") for line in lines)), "the legend goes first"


def test_colours_are_left_out_where_a_person_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    display, _ = shown(80)
    assert coloured.search(display.console.file.getvalue())  # type: ignore[attr-defined]
    monkeypatch.setenv("NO_COLOR", "1")
    display, _ = shown(80)
    assert not coloured.search(display.console.file.getvalue())  # type: ignore[attr-defined]


def test_an_interrupted_display_leaves_the_trials_and_a_clean_terminal() -> None:
    display, _ = shown(80)
    out = display.console.file
    assert isinstance(out, io.StringIO)
    out.truncate(0)
    with pytest.raises(KeyboardInterrupt), display:
        raise KeyboardInterrupt
    text = out.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is hidden, and shown again"
    last = text[text.rindex("trial ") :]
    assert "01-kteps" in last
    assert "cluster:" not in last
    assert text.endswith(("\n", "\x1b[?25h"))


def test_numbers_are_written_for_people() -> None:
    assert [data_size(n) for n in (0, 532, 12_100_000, 80_000_000, 2.4e12)] == [
        "0 B",
        "532 B",
        "12.1 MB",
        "80 MB",
        "2.4 TB",
    ]
    assert [duration(s) for s in (4.1, 28.4, 185, 7800)] == ["4.1 s", "28 s", "3 min 05 s", "2 h 10 min"]


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


def test_a_narrow_terminal_leaves_out_what_matters_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    print_table(*outcomes_of_a_sweep(), "Ap_val", "max", out)
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert text[0].split() == ["#", "trial", "lambda1", "Ag", "Ap", "Ap_val", "status"]
    assert text[2].split() == ["2", "02-kteps", "0.01", "83.0", "85.0", "83.0", "finished"]
    assert text[6].endswith("too narrow: method, loss, bytes/client/round, s/round, rounds")
    assert isinstance(progress([], out), LiveProgress)


def test_seeds_of_a_case_share_a_line_with_mean_and_deviation() -> None:
    cases = [Planned("00-fedavg", "fedavg", True, experiment("fedavg"))]
    cases += [replace(kteps(n, n / 100), id=f"{n:02d}-kteps-seed{seed}") for n in (1, 2) for seed in (0, 1, 2)]
    levels = {"00-fedavg": 0.8, "01-kteps-seed0": 0.60, "01-kteps-seed1": 0.70, "01-kteps-seed2": 0.65}
    outcomes = {case: Outcome("finished", tuple(rows(3, level=level))) for case, level in levels.items()}
    outcomes["02-kteps-seed0"] = Outcome("finished", tuple(rows(3, level=0.9)))
    outcomes["02-kteps-seed1"] = Outcome("failed", tuple(rows(1)), "no")
    out = io.StringIO()
    print_table(cases, outcomes, "Ap_val", "max", out)
    text = out.getvalue().splitlines()
    assert text[0].split()[3:6] == ["lambda1", "seeds", "Ag"]
    assert text[2].split()[1:] == [
        *("02-kteps", "kteps", "0.02", "1", "93.0", "95.0", "93.0", "0.167"),
        *("5.0", "MB", "4.10", "1/3", "1", "finished,", "1", "failed"),
    ]
    assert text[3].split()[1:7] == ["00-fedavg", "(baseline)", "fedavg", "-", "1", "83.0"]
    assert " 0.01      3  68.0 ± 5.0  70.0 ± 5.0  68.0 ± 5.0  0.167 ± 0.000 " in text[4]
    assert "02-kteps-seed1 lambda1=0.02 failed: no" in text
    assert text[-1].endswith("Of several seeds: mean ± standard deviation.")
    winner = best(cases, outcomes, "Ap_val", "max")
    assert winner is not None
    assert winner.id == "01-kteps", "of the other a seed failed"


def test_sorting_by_a_test_metric_is_called_what_it_is() -> None:
    cases, outcomes = outcomes_of_a_sweep()
    assert len(notes(cases, outcomes, "Ap_val", "max")) == 1
    said = notes(cases, outcomes, "Ap", "max")[1]
    assert "selection on the test split" in said
    assert "tune.metric=Ap_val" in said
    assert "corpus.validation" in notes(cases, outcomes, "Ag", "max")[1]
    assert "not sorted" in notes(cases, outcomes, "AUC", "max")[0]


def test_the_callback_tells_a_live_display_now_and_then_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    case, now, asked = kteps(1, 0.01), [100.0], list[str]()
    monkeypatch.setattr("dashboards.callback.time.monotonic", lambda: now[0])
    trial: Any = SimpleNamespace(status=Trial.PENDING, config={"case": case.id})

    def waiting(case_id: str) -> str:
        asked.append(case_id)
        return "waiting for 2 CPUs"

    nobody = cast(Any, None)  # MLflow is not told of this
    live = LiveProgress([case], Console(file=io.StringIO()))
    callback = TrialCallback([case], nobody, live, lambda _: [], waiting=waiting, in_use=lambda: USE)
    for moment in (100.0, 101.0, 103.0):
        now[0] = moment
        callback.on_step_end(0, [trial])
    assert asked == [case.id, case.id], "not at each step"
    assert live.use == USE
    assert live.waiting() == "1 trial waits: for 2 CPUs"
    plain = PlainProgress([case], io.StringIO())
    TrialCallback([case], nobody, plain, lambda _: [], in_use=lambda: pytest.fail("looked")).on_step_end(0, [trial])


def test_lines_say_on_standard_error_that_no_trial_can_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case, now = kteps(1, 0.01), [0.0]
    monkeypatch.setattr("dashboards.callback.time.monotonic", lambda: now[0])
    trial: Any = SimpleNamespace(status=Trial.PENDING, config={"case": case.id})
    plain = PlainProgress([case], io.StringIO())
    callback = TrialCallback([case], cast(Any, None), plain, lambda _: [], waiting=lambda _: "waiting for 2 CPUs")
    for moment in (0.0, 4.0, 6.0, 7.0, 37.0):
        now[0] = moment
        callback.on_step_end(0, [trial])
    assert capsys.readouterr().err == "waiting for 2 CPUs\n" * 2
