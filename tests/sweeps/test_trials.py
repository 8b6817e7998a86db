"""Exit statuses: 2 where the user can mend the cause, a full disk for example, and 1 where a trial failed by itself."""

import errno
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import cloudpickle

from actors.metrics import TrialMetrics
from dashboards.callback import TrialCallback
from dashboards.progress import PlainProgress
from dashboards.recorder import Recorder
from dashboards.store import Store
from dashboards.tracking import Tracker
from dashboards.trial import Outcome
from fedtext.state.checkpoint import history
from sweeps.trials import exit_status
from tests.commands import ROOT, write
from tests.planned import experiment, kteps, run_id

FINISHED, STOPPED = Outcome("finished"), Outcome("stopped")
DISK = Outcome("failed", error="the disk is full", user_error=True)
LOSS = Outcome("failed", error="its loss is not finite")


@pytest.mark.parametrize(
    ("outcomes", "left", "status"),
    [
        ([FINISHED, STOPPED], 0, 0),
        ([DISK], 0, 2),
        ([FINISHED, DISK, DISK], 0, 2),
        ([LOSS], 0, 1),
        ([DISK, LOSS], 0, 1),
        ([FINISHED], 1, 1),
        ([DISK], 1, 1),
    ],
)
def test_the_status_of_trials(outcomes: list[Outcome], left: int, status: int) -> None:
    ended = {str(number): outcome for number, outcome in enumerate(outcomes)}
    assert exit_status(ended, left) == status
    assert exit_status(ended, left, interrupted=True) == (130 if left else status)


def library(*words: str, **how: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "fedtext", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True, **how)


def one_sentence(done: "subprocess.CompletedProcess[str]", words: str, status: int = 2) -> None:
    assert done.returncode == status, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_the_library_alone_with_output_on_a_full_disk(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = library(str(write(tmp_path)), "--out", str(tmp_path / "out"), stdout=full)
    one_sentence(done, "the standard output cannot be written: No space left on device")


def test_the_library_alone_with_state_that_cannot_be_written(tmp_path: Path) -> None:
    """Files may have 8 kB, less than the server's parameters have."""
    file, out = write(tmp_path), tmp_path / "out"
    assert library(str(file), "training.rounds=1", "--out", str(out), stdout=subprocess.DEVNULL).returncode == 0
    before = {path: path.read_bytes() for path in out.rglob("round-000001/*")}
    assert before
    command = f"ulimit -f 8; exec {sys.executable} -m fedtext {file} training.rounds=2 --out {out}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    one_sentence(done, "cannot be written (File too large)")
    assert {path: path.read_bytes() for path in out.rglob("round-*/*")} == before
    assert len(history(out)) == 1


def test_the_library_alone_with_a_client_whose_loss_is_not_finite(tmp_path: Path) -> None:
    done = library(str(write(tmp_path)), "training.optimizer={name: sgd, lr: 1e30}", stdout=subprocess.DEVNULL)
    one_sentence(done, "failed in round 1: its training loss is", 1)


@pytest.mark.parametrize(("result", "user_error"), [({"user_error": True}, True), ({}, False)])
def test_an_outcome_that_a_full_disk_does_not_take_is_shown_and_in_mlflow(
    result: dict[str, Any], user_error: bool, tmp_path: Path, store: Store
) -> None:
    def full(case_id: str, outcome: Outcome) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    case, out = kteps(1, 0.01), io.StringIO()
    tracker = Tracker(store, tmp_path / "run", experiment(), sweep=True)
    trial: Any = SimpleNamespace(config={"case": case.id})
    with Recorder(lambda: tracker) as recorder:
        callback = TrialCallback([case], recorder, PlainProgress([case], out), lambda case_id: [], on_end=full)
        callback.record("open", lambda tracker: tracker.open())
        callback.on_trial_start(0, [], trial)
        callback.on_trial_result(0, [], trial, {"error": "the disk is full"} | result)
        callback.on_trial_complete(0, [], trial)
    assert callback.outcomes == {case.id: Outcome("failed", (), "the disk is full", user_error)}
    assert "the disk is full" in out.getvalue()
    assert store.client().get_run(run_id(tmp_path / "run" / case.id)).info.status == "FAILED"


def test_a_failure_whose_exception_cannot_be_loaded_has_an_outcome(tmp_path: Path) -> None:
    case, pickled = kteps(1, 0.01), tmp_path / "error.pkl"
    pickled.write_bytes(b"cnowhere_at_all\nGone\n.")  # of a module that only the trial's process has
    trial: Any = SimpleNamespace(config={"case": case.id}, pickled_error_file=str(pickled))
    nothing: Any = SimpleNamespace(call=lambda what, failed: None, begin=lambda: None)
    callback = TrialCallback([case], nothing, PlainProgress([case], io.StringIO()), lambda case_id: [])
    callback.servers.lost = None
    callback.on_trial_error(0, [], trial)
    assert callback.outcomes == {case.id: Outcome("failed", (), "its process ended without saying why")}


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (ray.exceptions.ActorDiedError(), {"trials_failed": 1}),
        (ValueError("raised by the server, which counts it"), {}),
    ],
)
def test_a_trial_whose_server_died_is_counted_here(
    error: Exception, counted: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, pickled, found = kteps(1, 0.01), tmp_path / "error.pkl", dict[str, float]()
    pickled.write_bytes(cloudpickle.dumps(error))
    monkeypatch.setattr(TrialMetrics, "add", lambda self, **amounts: found.update(amounts))
    trial: Any = SimpleNamespace(config={"case": case.id}, pickled_error_file=str(pickled))
    nothing: Any = SimpleNamespace(call=lambda what, failed: None, begin=lambda: None)
    callback = TrialCallback([case], nothing, PlainProgress([case], io.StringIO()), lambda case_id: [])
    callback.servers.lost = None
    callback.on_trial_error(0, [], trial)
    assert found == counted
    callback.on_trial_recover(0, [], trial)
    assert found == counted | {"retries": 1}
