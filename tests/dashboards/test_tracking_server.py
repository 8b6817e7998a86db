"""A real MLflow server that dies and returns, and Tune driving tracking and progress."""

import io
import json
import pickle
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import tune
from ray.tune.experiment import Trial

from actors.metrics import TrialMetrics
from dashboards import store as stores
from dashboards.callback import DisplacedError, TrialCallback
from dashboards.losses import Losses, Lost
from dashboards.progress import PlainProgress
from dashboards.recorder import Recorder
from dashboards.store import Store
from dashboards.tracking import Tracker
from dashboards.trial import About, Case, Dataset, Outcome
from fedtext.errors import ClientError
from fedtext.records import RoundRecord
from tests.loops import nonempty
from tests.planned import CLIENTS, experiment, kteps, rows, run_id, steps, table_of, won
from tests.tracking import free_port, server


def test_rows_that_a_dead_server_missed_arrive_exactly_once(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, folder, port = kteps(1, 0.01, 6), kteps(2, 0.1, 6), tmp_path / "run", free_port()
    remote, history = Store(f"http://127.0.0.1:{port}"), rows(6, 6)
    tracker = Tracker(remote, folder, experiment(), sweep=True, retry_seconds=0)
    with server(tmp_path, port):
        stores.check(remote)
        tracker.open()
        tracker.open_trial(one)
        tracker.deliver(one.id, history[:2])
    tracker.deliver(one.id, history[2:3])
    tracker.deliver(one.id, history[3:4])
    tracker.open_trial(two)
    tracker.deliver(two.id, history)
    tracker.close_trial(two.id, "FAILED", "a cause")
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert re.match(
        rf"MLflow at http://127.0.0.1:{port} did not take .* connection was (refused|cut).* training goes on", said[0]
    )
    assert json.loads((folder / one.id / "tracking.json").read_text())["last_round"] == 2
    assert len((folder / two.id / "spool.jsonl").read_text().splitlines()) == 6
    with server(tmp_path, port):
        tracker.deliver(one.id, history[4:5])
        first, second = run_id(folder / one.id), run_id(folder / two.id)
        assert steps(store.client(), first, "loss") == [1, 2, 3, 4, 5]
        tracker.deliver(one.id, history)
        tracker.close_trial(one.id, "FINISHED")
        tracker.close(best=won(one, history))
        for each in (first, second):
            table = table_of(remote, each)
            assert sorted(zip(table["round"], table["client"], strict=True)) == [
                (number, name) for number in range(1, 7) for name in sorted(CLIENTS)
            ]
    client = store.client()  # the database itself: no server stands before it any more
    for each, status in ((first, "FINISHED"), (second, "FAILED")):
        assert client.get_run(each).info.status == status
        for name in ("loss", "Ag"):
            assert steps(client, each, name) == [1, 2, 3, 4, 5, 6]
    assert len(client.search_runs(["1"])) == 3
    assert not list(folder.glob("*/spool.jsonl"))
    assert capsys.readouterr().err == ""


def test_a_sweep_without_its_server_is_spooled_and_a_later_tracker_delivers_all_of_it(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    gone = Store(f"http://127.0.0.1:{free_port()}")
    away = Tracker(gone, folder, experiment(), sweep=True, again="python -m platform.sweep --resume run")
    began = time.monotonic()
    away.open()
    away.open_trial(case, About(dataset=Dataset("demo", "abc"), files={"corpus.txt": "a table"}))
    for each in rows(3):
        away.deliver(case.id, [each])
    away.close_trial(case.id, "FAILED", "a cause")
    away.close(best=won(case, rows(3)))
    assert time.monotonic() - began < 15
    spooled = [RoundRecord.from_json(json.loads(line)) for line in (folder / case.id / "spool.jsonl").open()]
    assert spooled == rows(3)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 2
    assert "lacks 3 rounds of 2 runs" in said[1]
    assert said[1].endswith("run, and python -m platform.sweep --resume run delivers them")

    later = Tracker(store, folder, experiment(), sweep=True)
    later.open()
    found = store.client().get_run(run_id(folder / case.id))
    assert (found.info.status, found.data.tags["error"]) == ("FAILED", "a cause")
    assert steps(store.client(), found.info.run_id, "loss") == [1, 2, 3]
    assert found.data.params["lambda1"] == "0.01"
    assert found.data.tags["mlflow.parentRunId"] == run_id(folder)
    assert found.inputs.dataset_inputs[0].dataset.digest == "abc"
    assert len(table_of(store, found.info.run_id)) == 6
    assert {"experiment.yaml", "corpus.txt"} <= {f.path for f in store.client().list_artifacts(found.info.run_id)}
    later.close(best=won(case, rows(3)))
    assert store.client().get_run(run_id(folder)).data.tags["best.case"] == case.id
    assert not list(folder.glob("*/spool.jsonl"))
    assert capsys.readouterr().err == ""


@pytest.mark.ray
@pytest.mark.slow
def test_tune_drives_tracking_and_progress_and_no_fault_in_them_ends_a_sweep(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [kteps(number, 0.01 * number) for number in (0, 1, 2, 3, 4)]
    before, ended, out = {"01-kteps": rows(1)}, [], io.StringIO()

    def history(case_id: str) -> list[RoundRecord]:
        if case_id == "04-kteps":
            raise KeyError("a fault in recording")
        return before.get(case_id, [])

    reported = rows(3)

    def trainable(config: dict[str, Any]) -> None:
        """Reports rounds as trials do; some cases end early in their own ways. It stands here, and so goes to the
        workers itself, lest they import this file and MLflow."""
        case = config["case"]
        for record in reported:
            if case == "02-kteps" and record.round == 2:
                tune.report({"error": "client dvd failed in round 2: its loss is not finite"})
                return
            if case == "03-kteps" and record.round == 2:
                raise ClientError("books", 2, "out of memory")
            tune.report({"round": record.round, "record": record})

    tracker, display = Tracker(store, tmp_path / "run", experiment(), sweep=True), PlainProgress(cases, out, every=0)
    tracker.open()
    recorder = Recorder(lambda: tracker)
    callback = TrialCallback(cases, recorder, display, history, on_end=lambda case_id, outcome: ended.append(case_id))
    callback.restore("00-kteps", Outcome("finished", tuple(rows(3))))
    assert pickle.loads(pickle.dumps(callback)).__dict__ == {}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        with recorder:
            tune.Tuner(
                tune.with_resources(trainable, {"cpu": 1}),
                param_space={"case": tune.grid_search([case.id for case in cases[1:]])},
                run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), callbacks=[callback], verbose=0),
            ).fit()
    finally:
        ray.shutdown()
    tracker.close()

    ends = {case_id: (outcome.status, len(outcome.rows)) for case_id, outcome in callback.outcomes.items()}
    assert ends.pop("04-kteps")[0] in ("finished", "stopped")
    assert ends == {
        "00-kteps": ("finished", 3),
        "01-kteps": ("finished", 3),
        "02-kteps": ("failed", 1),
        "03-kteps": ("failed", 1),
    }
    assert callback.outcomes["02-kteps"].error == "client dvd failed in round 2: its loss is not finite"
    assert callback.outcomes["03-kteps"].error == "client books failed in round 2: out of memory"
    assert sorted(ended) == ["01-kteps", "02-kteps", "03-kteps", "04-kteps"]
    client = store.client()
    states = {case.id: client.get_run(run_id(tmp_path / "run" / case.id)).info.status for case in cases[:4]}
    assert states == {"00-kteps": "FINISHED", "01-kteps": "FINISHED", "02-kteps": "FAILED", "03-kteps": "FAILED"}
    for case_id in ("00-kteps", "01-kteps"):
        assert steps(client, run_id(tmp_path / "run" / case_id), "Ag") == [1, 2, 3]
    assert "00-kteps lambda1=0  finished earlier  round 3/3" in out.getvalue()
    assert "01-kteps lambda1=0.01  goes on after round 1/3" in out.getvalue()
    assert "03-kteps lambda1=0.03  failed after round 1/3: client books failed in round 2" in out.getvalue()
    said = capsys.readouterr().err
    assert said.count("recording failed in on_trial_start (KeyError: 'a fault in recording')") == 1


def test_a_trial_given_up_before_it_started_is_tried_again_and_has_failed_then(tmp_path: Path, store: Store) -> None:
    case = kteps(1, 0.01)
    tracker, display = Tracker(store, tmp_path / "run", experiment(), sweep=True), PlainProgress([case], io.StringIO())
    trial: Any = SimpleNamespace(config={"case": case.id}, pickled_error_file=None)
    with Recorder(lambda: tracker) as recorder:
        callback = TrialCallback([case], recorder, display, lambda case_id: [])
        callback.record("open", lambda tracker: tracker.open())
        callback.on_trial_error(0, [], trial)
        assert (callback.servers.lost, callback.outcomes) == ({case.id}, {})
        callback.servers.lost = None
        callback.on_trial_error(0, [], trial)
    assert callback.outcomes[case.id].status == "failed"
    assert store.client().get_run(run_id(tmp_path / "run" / case.id)).info.status == "FAILED"


def test_a_trial_given_up_while_it_was_started_again_is_tried_again_while_restarts_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune starts it in a process that another trial has left, and gives it up if that one dies just then."""
    case, found = kteps(1, 0.01), list[str]()
    nothing: Any = SimpleNamespace(call=lambda what, failed: None, begin=lambda: None)
    monkeypatch.setattr(TrialMetrics, "add", lambda self, **amounts: found.extend(amounts))
    trial = trial_of(case)
    for left, ends in nonempty([(True, "restarts"), (False, "restarts"), (True, "runs"), (False, "next generation")]):
        trial.should_recover, found[:] = lambda left=left: left, []
        callback = TrialCallback([case], nothing, PlainProgress([case], io.StringIO()), lambda case_id: rows(1))
        callback.until = {case.id: 1}
        callback.on_trial_start(0, [trial], trial)
        callback.on_trial_result(0, [trial], trial, {"record": rows(1)[0]})
        if ends == "restarts":
            callback.on_trial_recover(0, [trial], trial)
        elif ends == "next generation":
            callback.on_trial_complete(0, [trial], trial)
        callback.on_trial_error(0, [trial], trial)
        again = ends == "next generation" or (ends == "restarts" and left)
        assert callback.servers.lost == ({case.id} if again else set()), (left, ends)
        assert [outcome.status for outcome in callback.outcomes.values()] == ([] if again else ["failed"])
        assert found.count("retries") == (ends == "restarts") * (1 + left)


def test_trials_without_a_place_end_the_run_of_tune_and_are_no_outcomes(tmp_path: Path, store: Store) -> None:
    cases = [kteps(1, 0.01), kteps(2, 0.1)]
    tracker, display = Tracker(store, tmp_path / "run", experiment(), sweep=True), PlainProgress(cases, io.StringIO())
    first, second = (trial_of(case) for case in cases)
    with Recorder(lambda: tracker) as recorder:
        fits: list[str] = []
        callback = TrialCallback(cases, recorder, display, lambda case_id: [], fits=lambda case_id: case_id in fits)
        callback.on_trial_start(0, [first], first)
        callback.on_trial_result(0, [first], first, {"displaced": "its node was lost"})
        first.status = Trial.TERMINATED
        callback.on_trial_complete(0, [first], first)
        assert callback.outcomes == {}
        second.status = Trial.RUNNING
        callback.on_step_end(1, [first, second])  # there is one that runs
        second.status = Trial.PENDING
        callback.on_step_end(2, [first, second])
        callback.pending.ask_at = 0.0  # as if it had waited
        with pytest.raises(DisplacedError):
            callback.on_step_end(3, [first, second])
        assert callback.displaced == {case.id for case in cases}
        fits.append(cases[1].id)
        callback.displaced, callback.pending.ask_at = {cases[0].id}, 0.0
        callback.on_step_end(4, [first, second])  # it fits, and waits for others
        with pytest.raises(DisplacedError):
            callback.on_step_end(5, [first])  # all have ended, and one has to go on


def test_where_actors_lack_a_place_is_said_once_and_so_is_that_all_have_one_again(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the trial went back to its last checkpoint in between."""
    case, kept = kteps(1, 0.01), dict[str, Lost]()
    tracker, display = Tracker(store, tmp_path / "run", experiment(), sweep=True), PlainProgress([case], io.StringIO())
    lacks, trial, (first, second, third) = "1 of 2 client actors have no place", trial_of(case), rows(3)
    losses = Losses(lambda case_id: Lost(2, 10.0, ("it had",)), kept.__setitem__)
    with Recorder(lambda: tracker) as recorder:
        callback = TrialCallback([case], recorder, display, lambda case_id: [], losses=losses)
        callback.on_trial_start(0, [trial], trial)
        callback.on_trial_result(0, [trial], trial, {"record": first, "short": lacks})
        callback.on_trial_result(0, [trial], trial, {"record": second, "short": lacks})
        assert capsys.readouterr().err == f"warning: {case.id} lambda1=0.01: {lacks}\n"
        assert kept == {}
        callback.on_trial_result(0, [trial], trial, {"record": third, "short": "", "lost": "it died", "reached": 2})
        whole, back = capsys.readouterr().err.splitlines()
        assert whole.endswith(": all of its client actors have a place again")
        assert back.endswith("s later; until now 3 restarts have cost 10.9 s")
        callback.on_trial_complete(0, [trial], trial)
    assert kept[case.id] == Lost(3, pytest.approx(10.9), ("it had", back.partition("0.01: ")[2]))
    found = store.client().get_run(run_id(tmp_path / "run" / case.id))
    assert (found.data.metrics["time/restarts"], found.data.metrics["time/seconds_lost"]) == (3, pytest.approx(10.9))
    assert found.data.tags["losses"] == "; ".join(kept[case.id].sentences)


def trial_of(case: Case) -> Any:
    metadata = SimpleNamespace(num_failures=1)
    trial = SimpleNamespace(config={"case": case.id}, status=Trial.RUNNING, run_metadata=metadata)
    trial.pickled_error_file = None
    trial.is_finished = lambda: trial.status in (Trial.ERROR, Trial.TERMINATED)
    return trial
