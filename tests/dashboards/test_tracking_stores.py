"""A run that goes on where MLflow no longer has it: in another store, or after it was deleted."""

from pathlib import Path

import pytest

from dashboards import mirror_files
from dashboards import store as stores
from dashboards.delivery import SILENCE_SECONDS
from dashboards.mirror import Mirror
from dashboards.store import Store
from dashboards.tracking import Tracker
from tests.loops import nonempty
from tests.planned import experiment, kteps, rows, run_id, steps, table_of
from tests.tracking import free_port


def test_a_run_that_was_deleted_in_mlflow_begins_anew_with_all_its_rows(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    first = Tracker(store, folder, case.experiment, sweep=False)
    first.open_trial(case)
    first.deliver(case.id, rows(2))
    old, client = run_id(folder / case.id), store.client()
    client.delete_run(old)
    second = Tracker(store, folder, case.experiment, sweep=False)
    second.open_trial(case)
    second.deliver(case.id, rows(3))
    second.close_trial(case.id, "FINISHED")
    new = run_id(folder / case.id)
    assert new != old
    assert steps(client, new, "loss") == [1, 2, 3]
    assert client.get_run(new).data.params["method.name"] == "kteps"
    assert len(table_of(store, new)) == 6
    (said,) = capsys.readouterr().err.splitlines()
    assert said == (
        f"MLflow at {store.shown} does not have the run of {case.id}, which was deleted: it is recorded anew"
    )


def test_each_store_in_which_trials_go_on_has_one_run_of_each_and_the_former_store_is_named(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, folder = [kteps(1, 0.01), kteps(2, 0.1)], tmp_path / "run"
    first = Tracker(store, folder, experiment(), sweep=True)
    first.open()
    for case in cases:
        first.open_trial(case)
        first.deliver(case.id, rows(2))
    first.close("FAILED")
    other = Store(f"sqlite:///{tmp_path / 'other.db'}", (tmp_path / "artifacts").as_uri())
    stores.check(other)
    second = Tracker(other, folder, experiment(), sweep=True)
    second.open()
    for case in cases:
        second.open_trial(case)
        second.deliver(case.id, rows(3))
        second.close_trial(case.id, "FINISHED")
    second.close()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(f"does not have the run of run, which was recorded at {store.shown}: it is recorded anew")
    for case in nonempty(cases):
        assert steps(other.client(), run_id(folder / case.id), "loss") == [1, 2, 3]
    third = Tracker(store, folder, experiment(), sweep=True)
    third.open()
    for case in cases:
        third.settle(case, rows(3), "FINISHED")
    third.close()
    assert capsys.readouterr().err == ""
    assert len(store.client().search_runs(["1"])) == 3
    for case in nonempty(cases):
        assert steps(store.client(), run_id(folder / case.id), "loss") == [1, 2, 3]
        assert store.client().get_run(run_id(folder / case.id)).info.status == "FINISHED"


def test_a_store_that_is_never_reached_leaves_no_trace(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    first = Tracker(store, folder, experiment(), sweep=True)
    first.open()
    first.open_trial(case)
    first.deliver(case.id, rows(2))
    first.close("FAILED")
    before = (folder / case.id / "tracking.json").read_text()
    away = Tracker(Store(f"http://127.0.0.1:{free_port()}"), folder, experiment(), sweep=True)
    away.open()
    away.open_trial(case)
    away.deliver(case.id, rows(3))
    away.close("FAILED")
    assert (folder / case.id / "tracking.json").read_text() == before
    assert "did not take what was sent" in capsys.readouterr().err
    again = Tracker(store, folder, experiment(), sweep=True)
    again.open()
    again.settle(case, rows(4), "FINISHED")
    again.close()
    assert capsys.readouterr().err == ""
    assert len(store.client().search_runs(["1"])) == 2
    assert steps(store.client(), run_id(folder / case.id), "loss") == [1, 2, 3, 4]


def test_what_a_store_is_owed_is_kept_while_a_run_is_recorded_in_another_one() -> None:
    owed = mirror_files.Owed(model="a folder")
    first = mirror_files.State(uri="A", run_id="a", status="RUNNING", owed=owed)
    second = mirror_files.of_store(first, "B")
    assert (second["run_id"], second["owed"]) == ("a", owed), "B may be another address of A"
    back = mirror_files.of_store(mirror_files.State(**second | {"uri": "B", "run_id": "b", "owed": {}}), "A")
    assert (back["run_id"], back["status"], back["owed"]) == ("a", "RUNNING", owed)
    assert back["elsewhere"]["B"]["run_id"] == "b"
    assert mirror_files.of_store(mirror_files.State(**back | {"uri": "A"}), "B")["owed"] == {}


def test_a_store_of_files_that_cannot_be_reached_keeps_no_record_back(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MLflow reaches a bucket by boto3, whose exceptions are its own, or finds that boto3 is not installed."""
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("MAX_ATTEMPTS", "1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    case, folder = kteps(1, 0.01), tmp_path / "run"
    bucket = Store(store.uri, "s3://bucket/files")
    first = Tracker(bucket, folder, experiment(), sweep=True)
    first.open()
    first.open_trial(case)
    first.deliver(case.id, rows(2))
    first.close_trial(case.id, "FINISHED")
    first.log_files([Path(__file__)], "report")
    first.close()
    told = capsys.readouterr().err.splitlines()
    assert any("MLflow" in line and "lacks files of 2 runs" in line for line in told), told
    assert steps(bucket.client(), run_id(folder / case.id), "loss") == [1, 2]
    assert bucket.client().get_run(run_id(folder / case.id)).info.status == "FINISHED"


def test_a_store_of_files_that_does_not_answer_is_waited_for_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once more at the end: botocore waits for a minute."""
    now, waited = [1000.0], list[str]()

    def hang(self: Mirror, client: object, final: bool) -> None:
        waited.append(self.folder.name)
        now[0] += SILENCE_SECONDS + 1
        raise RuntimeError("read timeout")

    monkeypatch.setattr("dashboards.delivery.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Mirror, "deliver_files", hang)
    cases, folder = [kteps(1, 0.01), kteps(2, 0.1), kteps(3, 0.2)], tmp_path / "run"
    tracker = Tracker(store, folder, experiment(), sweep=True)
    tracker.open()
    for case in cases:
        tracker.open_trial(case)
        tracker.deliver(case.id, rows(2))
        tracker.close_trial(case.id, "FINISHED")
    assert len(waited) == 1
    tracker.close()
    assert len(waited) == 2
    for case in nonempty(cases):
        assert steps(store.client(), run_id(folder / case.id), "loss") == [1, 2]
