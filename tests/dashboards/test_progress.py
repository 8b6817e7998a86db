"""Lines on running trials, and what a display is told while they wait."""

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
from dashboards.live import LiveProgress
from dashboards.progress import PlainProgress
from fedtext.metrics.wording import data_size, duration
from tests.loops import nonempty
from tests.planned import kteps, row, rows

USE = Use(nodes=2, cpus=3, all_cpus=4, gpus=1, all_gpus=2, store=12e6, all_store=2.1e9)


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


def test_metrics_of_an_earlier_round_are_said_to_be_of_that_round() -> None:
    out, case = io.StringIO(), kteps(3, 0.01, 10)
    with PlainProgress([case], out, every=0) as display:
        display.start(case)
        for number in range(1, 4):
            record = row(number)
            kept = {name: value for name, value in record.metrics.items() if number == 2 or name != "Ag"}
            display.row(case.id, replace(record, metrics=kept))
    lines = [line for line in out.getvalue().splitlines() if "/10  loss" in line]
    assert ["Ag" in line for line in lines] == [False, True, True]
    assert ["(evaluated after round 2)" in line for line in lines] == [False, False, True]


def test_a_trial_that_goes_on_with_other_values_is_named_by_these() -> None:
    """As a member of a population does."""
    out, case = io.StringIO(), kteps(3, 0.01, 10)
    with PlainProgress([case], out) as display:
        display.start(case)
        display.start(kteps(3, 0.2, 10), rows(4, 10))
        display.finish(case.id, "finished")
    assert out.getvalue().splitlines()[:2] == [
        "03-kteps lambda1=0.01  started  10 rounds",
        "03-kteps lambda1=0.2  goes on after round 4/10",
    ]
    assert "03-kteps lambda1=0.2  finished" in out.getvalue()


def test_numbers_are_written_for_people() -> None:
    assert [data_size(n) for n in (0, 532, 12_100_000, 80_000_000, 2.4e12)] == [
        "0 B",
        "532 B",
        "12.1 MB",
        "80 MB",
        "2.4 TB",
    ]
    assert [duration(s) for s in (4.1, 28.4, 185, 7800)] == ["4.1 s", "28 s", "3 min 05 s", "2 h 10 min"]


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
