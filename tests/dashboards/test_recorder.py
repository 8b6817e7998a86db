"""The thread that records: when it begins, in which order it works, and what becomes of its faults."""

import io
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dashboards import store as stores
from dashboards.callback import TrialCallback
from dashboards.losses import Lost
from dashboards.progress import PlainProgress
from dashboards.recorder import Recorder
from fedtext.errors import UserError
from fedtext.records import RoundRecord
from sweeps.folder import RunFolder
from sweeps.job import Job
from sweeps.trials import recorder as recorder_of
from tests import ROOT, tiny
from tests.loops import nonempty
from tune_spaces.cases import Case


class Told:
    """Stands where the Tracker would: what it was told, in which order."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def open_trial(self, case: Case, *told: Any) -> None:
        self.words.append(f"{case.id} opened")

    def close_trial(self, case: str, status: str, *told: Any) -> None:
        self.words.append(f"{case} {status}")

    def deliver(self, case: str, records: list[RoundRecord]) -> None:
        self.words.append(f"{case} {records[0].round}")


def never(error: Exception) -> None:
    raise AssertionError(error)


def test_it_begins_with_the_first_round_and_keeps_the_order() -> None:
    made, began = Told(), Event()

    def make() -> Any:
        began.set()
        return made

    case = Case("case", "case", "", False, {}, tiny.experiment())
    trial: Any = SimpleNamespace(config={"case": case.id}, run_metadata=SimpleNamespace(num_failures=1))
    with Recorder(make, hold=600) as recorder:
        callback = TrialCallback([case], recorder, PlainProgress([case], io.StringIO()), lambda case_id: [])
        recorder.call(lambda tracker: tracker.deliver("before", [RoundRecord(0, 0.0, {})]), never)
        callback.on_trial_result(0, [], trial, {"training_iteration": 1})
        assert not began.wait(0.2), "a result without a round is none"
        callback.on_trial_result(0, [], trial, {"record": RoundRecord(1, 0.0, {})})
        assert began.wait(60)
    assert made.words == ["before 0", "case 1"]


class Unshown(PlainProgress):
    """A display with a mistake."""

    def _print(self, *told: Any) -> None:
        raise KeyError("a column")


class Unread(io.StringIO):
    """A stream whose reader has closed the pipe."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("progress", [PlainProgress, Unshown])
def test_a_trial_is_recorded_whether_or_not_it_is_displayed(
    progress: type[PlainProgress], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages on standard error end nothing either."""
    made: Any = Told()
    case, kept = Case("case", "case", "", False, {}, tiny.experiment()), list[str]()
    trial: Any = SimpleNamespace(config={"case": case.id}, run_metadata=SimpleNamespace(num_failures=1))
    losses: Any = SimpleNamespace(regained=lambda *told: (told[2], ""), keep=kept.append, of=lambda _: Lost())
    monkeypatch.setattr(sys, "stderr", Unread())
    with Recorder(lambda: made, hold=0) as recorder:
        display = progress([case], Unread())
        callback = TrialCallback([case], recorder, display, lambda case_id: [RoundRecord(1, 0.0, {})], losses=losses)
        callback.on_trial_start(0, [], trial)
        last = RoundRecord(case.experiment.training.rounds, 0.0, {})
        said = {"unused_gpus": "a GPU is not used", "machines": "A; B", "changed": "results depend on the machines"}
        callback.on_trial_result(0, [], trial, {"record": last, **said})
        callback.on_trial_complete(0, [], trial)
        callback.change(case, "it goes on with lr=0.1")
        callback.changed(case.id, "and with lr=0.2")
    assert made.words == ["case opened", "case 1", f"case {last.round}", "case FINISHED"]
    assert trial.run_metadata.num_failures == 0
    assert kept == ["case"]
    changes = "it goes on with lr=0.1; and with lr=0.2"
    assert callback.tags == {"case": {"machines": "A; B", "changes": changes}}


def test_what_holds_of_the_machines_of_all_trials_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [Case(name, name, "", False, {}, tiny.experiment()) for name in ("00-kteps", "01-kteps")]

    def warnings(*of: Case) -> list[str]:
        with Recorder(lambda: cast(Any, Told()), hold=0) as recorder:
            callback = TrialCallback(of, recorder, PlainProgress(of, io.StringIO()), lambda case_id: [])
            for case, sentence in nonempty([(case, f"machines {n}") for n in (1, 2) for case in of]):
                trial: Any = SimpleNamespace(config={"case": case.id}, run_metadata=SimpleNamespace(num_failures=0))
                callback.on_trial_result(0, [], trial, {"record": RoundRecord(1, 0.0, {}), "changed": sentence})
        return [line.partition("warning: ")[2] for line in capsys.readouterr().err.splitlines()]

    once = "; said once for all trials: the tag machines of each names its own"
    assert warnings(*cases) == [f"00-kteps: machines 1{once}", f"00-kteps: machines 2{once}"]
    assert warnings(cases[0]) == ["00-kteps: machines 1", "00-kteps: machines 2"]


def test_a_second_ctrl_c_waits_for_nothing_and_tells_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    made, told, busy, over = Told(), list[str](), Event(), Event()
    made.say_nothing = lambda: told.append("nothing more")  # type: ignore[attr-defined]

    def work(tracker: Any) -> None:
        busy.set()
        over.wait(60)

    recorder = Recorder(lambda: cast(Any, made), hold=0)
    shutdown = recorder._thread.shutdown

    def interrupted(wait: bool = True, **named: Any) -> None:
        if wait:
            raise KeyboardInterrupt
        shutdown(wait, **named)

    monkeypatch.setattr(recorder._thread, "shutdown", interrupted)
    recorder.call(work, never)
    assert busy.wait(60)
    later = recorder.call(lambda tracker: tracker.deliver("late", [RoundRecord(1, 0.0, {})]), never)
    with pytest.raises(KeyboardInterrupt):
        recorder.__exit__(None, None, None)
    assert told == ["nothing more"]
    assert later.cancelled()
    over.set()
    shutdown()
    assert made.words == []


def test_it_does_not_wait_for_a_long_round() -> None:
    made: Any = Told()
    with Recorder(lambda: made, hold=0.01) as recorder:
        assert recorder.call(lambda tracker: "done", never).result(60) == "done"


def test_what_ends_early_is_recorded_to_the_end() -> None:
    made: Any = Told()
    with Recorder(lambda: made, hold=600) as recorder:
        recorder.call(lambda tracker: tracker.deliver("all", [RoundRecord(0, 0.0, {})]), never)
    assert made.words == ["all 0"]


def test_its_faults_are_told_and_end_nothing() -> None:
    made: Any = Told()
    faults: list[str] = []

    def fail(tracker: Any) -> None:
        raise KeyError("a run")

    with Recorder(lambda: made, hold=0) as recorder:
        recorder.call(fail, lambda error: faults.append(repr(error)))
        kept = recorder.call(lambda tracker: 2, never)
    assert kept.result() == 2
    assert faults == ["KeyError('a run')"]


def test_without_a_tracker_nothing_is_done_and_that_is_told_once() -> None:
    faults: list[str] = []

    def make() -> Any:
        raise OSError("no such folder")

    with Recorder(make, hold=0) as recorder:
        asked = [recorder.call(lambda tracker: 1, lambda error: faults.append(repr(error))) for _ in range(3)]
    assert [one.result() for one in asked] == [None] * 3
    assert faults == ["OSError('no such folder')"]


def test_a_new_database_that_cannot_be_made_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training has begun by then."""

    def refuse(store: stores.Store) -> None:
        raise UserError("MLflow at here cannot be used: the disk is full; check tracking.uri")

    store = stores.resolve(None, tmp_path)
    stores.reach(store)
    monkeypatch.setattr(stores, "open_", refuse)
    experiment = tiny.experiment()
    case = Case("case", "case", "", False, {}, experiment)
    job = Job(True, experiment, [case], {}, {}, {}, [], store, RunFolder(tmp_path / "run"))
    with recorder_of(job) as recorder:
        recorder.call(lambda tracker: tracker.open(), never)
        recorder.call(lambda tracker: tracker.open_trial(case), never)
        recorder.call(lambda tracker: tracker.close(), never)
    assert capsys.readouterr().err == (
        "MLflow at here cannot be used: the disk is full; check tracking.uri; nothing that was trained is lost by it\n"
    )
    assert len(store.client().search_runs(["1"])) == 2


def test_mlflow_is_not_imported_before_it_is_needed() -> None:
    """Seconds of a core that the first round's processes need."""
    code = "import platform, sys, sweeps.prepare, sweeps.trials; print('mlflow' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
