"""The thread that records: when it begins, in which order it works, and what becomes of its faults."""

import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

from dashboards.recorder import Recorder

ROOT = Path(__file__).resolve().parent.parent


class Told:
    """Stands where the Tracker would: what it was told, in which order."""

    def __init__(self) -> None:
        self.words: list[str] = []


def test_it_begins_with_the_first_round_and_keeps_the_order() -> None:
    made, began = Told(), Event()

    def make() -> Any:
        began.set()
        return made

    with Recorder(make, hold=600) as recorder:
        for word in ("one", "two"):
            recorder.call(lambda tracker, word=word: tracker.words.append(word))
        assert not began.wait(0.2)
        recorder.begin()
        assert began.wait(60)
        last = recorder.call(lambda tracker: list(tracker.words))
    assert last.result() == made.words == ["one", "two"]


def test_it_does_not_wait_for_a_long_round() -> None:
    with Recorder(lambda: Told(), hold=0.01) as recorder:  # type: ignore[arg-type, return-value]
        assert recorder.call(lambda tracker: "done").result(60) == "done"


def test_what_ends_early_is_recorded_to_the_end() -> None:
    made = Told()
    with Recorder(lambda: made, hold=600) as recorder:  # type: ignore[arg-type, return-value]
        recorder.call(lambda tracker: tracker.words.append("all"))  # type: ignore[attr-defined]
    assert made.words == ["all"]


def test_its_faults_are_told_and_end_nothing() -> None:
    made, faults = iter([OSError("no such folder"), Told()]), list[str]()

    def make() -> Any:
        if isinstance(one := next(made), OSError):
            raise one
        return one

    def fail(tracker: Any) -> None:
        raise KeyError("a run")

    with Recorder(make, hold=0) as recorder:
        lost = recorder.call(lambda tracker: 1, lambda error: faults.append(repr(error)))
        recorder.call(fail, lambda error: faults.append(repr(error)))
        kept = recorder.call(lambda tracker: 2)
    assert (lost.result(), kept.result()) == (None, 2)
    assert faults == ["OSError('no such folder')", "KeyError('a run')"]


def test_mlflow_is_not_imported_before_it_is_needed() -> None:
    """Seconds of a core that the first round's processes need."""
    code = "import platform, sys, platform._launch, platform._trials; print('mlflow' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
