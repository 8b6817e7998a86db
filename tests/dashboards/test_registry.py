"""What is logged on request: the best trial's model in the registry, and system metrics."""

from pathlib import Path
from typing import Any

import pytest

from dashboards import store as stores
from dashboards.store import Store
from dashboards.tracking import Tracker
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.runtime.markdown import plain
from tests.planned import Planned, experiment, kteps, rows, run_id, won


def swept(folder: Path, store: Store, best: Planned, served: bool = True, **tracking: Any) -> None:
    """A finished sweep of two trials, whose models are one file each, and MLflow's description if they are served."""
    tracker = Tracker(store, folder, experiment(tracking=tracking), sweep=True, again="the command")
    tracker.open()
    for case in both():
        ended(tracker, folder, case, served)
    tracker.close(best=won(best, rows(3)))


def both() -> tuple[Planned, Planned]:
    return kteps(1, 0.01), kteps(2, 0.1)


def ended(tracker: Tracker, folder: Path, case: Planned, served: bool = True) -> None:
    """Record a trial from its start to its end, with its model."""
    (folder / case.id / "model").mkdir(parents=True, exist_ok=True)
    (folder / case.id / "model" / "weights").write_text(case.id)
    if served:
        (folder / case.id / "model" / "MLmodel").write_text("flavors: {}\nmodel_uuid: '1'\n")
    tracker.open_trial(case)
    tracker.deliver(case.id, rows(3))
    tracker.close_trial(case.id, "FINISHED")


def test_the_model_of_the_best_trial_is_a_version_once(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    best, folder, client = kteps(2, 0.1), tmp_path / "first", store.client()
    swept(folder, store, best, register="reviews")
    said = "models:/reviews/1 is the model of 02-kteps lambda1=0.1 of first, eval/Ap_val 0.73"
    assert said in capsys.readouterr().err
    swept(folder, store, best, register="reviews")  # as a sweep that is resumed
    (version,) = client.search_model_versions("name = 'reviews'")
    described = plain(said.partition(" is the model of ")[2])  # MLflow shows it as Markdown
    assert (version.run_id, version.description) == (run_id(folder / best.id), described)
    kept = stores.resolve(None, tmp_path).client().download_artifacts(version.run_id, "model/weights", str(tmp_path))
    assert Path(kept).read_text() == best.id
    assert version.source.endswith(f"{version.run_id}/artifacts/model")
    swept(tmp_path / "second", store, kteps(1, 0.01), register="reviews")
    assert {each.version for each in client.search_model_versions("name = 'reviews'")} == {1, 2}


def test_a_model_that_cannot_be_served_is_not_registered(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    best = kteps(2, 0.1)
    swept(tmp_path / "first", store, best, served=False, register="reviews")
    assert f"the model of {best.id} cannot be served, see its model.not_served" in capsys.readouterr().err
    assert list(store.client().search_registered_models()) == []
    run = store.client().get_run(run_id(tmp_path / "first" / best.id))
    assert run.info.status == "FINISHED"
    assert run.data.tags["model.not_served"]


def test_without_a_best_trial_nothing_is_registered_and_that_is_said(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = Tracker(store, tmp_path, experiment(tracking={"register": "reviews"}), sweep=True, again="the command")
    tracker.open()
    ended(tracker, tmp_path, both()[0])
    tracker.close()
    said = "no version of reviews was registered: no trial has reported Ap_val; choose another tune.metric"
    assert said in capsys.readouterr().err
    assert list(store.client().search_registered_models()) == []


def test_whatever_packaging_raises_a_trial_has_finished(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path) -> str:
        raise RuntimeError("an operator is missing")

    monkeypatch.setattr("dashboards.tracking.package", fails)
    swept(tmp_path / "first", store, kteps(1, 0.01))
    run = store.client().get_run(run_id(tmp_path / "first" / kteps(1, 0.01).id))
    assert (run.info.status, run.data.tags["model.not_served"]) == ("FINISHED", "RuntimeError: an operator is missing")


def test_nothing_is_registered_unless_it_is_asked_for(tmp_path: Path, store: Store) -> None:
    swept(tmp_path / "first", store, kteps(1, 0.01))
    assert list(store.client().search_registered_models()) == []


def test_a_store_without_a_registry_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stores.open_(store, registry=True)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "nowhere://at/all")
    stores.open_(store)
    with pytest.raises(
        UserError, match=r"^tracking\.register: MLflow at sqlite:.* has no model registry .*: leave the"
    ):
        stores.open_(store, registry=True)


@pytest.mark.parametrize("changes", [{"save": {"model": "clients"}}, {"save": {"model": "none"}}, {}])
def test_a_model_that_does_not_go_to_mlflow_cannot_be_registered(changes: dict[str, Any]) -> None:
    tracking = {"register": "reviews"} | ({} if changes else {"model": False})
    with pytest.raises(ValueError, match=r"tracking\.register needs the model in MLflow: set save\.model to shared"):
        experiment(tracking=tracking, **changes)
    assert experiment(tracking={"register": "reviews"}).model_dump(mode="json")["tracking"]["register"] == "reviews"


def test_system_metrics_are_those_of_the_sweep(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    case, folder = kteps(1, 0.01), tmp_path / "first"
    asked: Experiment = experiment(tracking={"system_metrics": True})
    tracker = Tracker(store, folder, asked, sweep=True)
    tracker.open()
    tracker.open_trial(case)
    client, name = store.client(), "system/cpu_utilization_percentage"
    for _ in range(1000):
        tracker.deliver(case.id, rows(2))
        if client.get_metric_history(run_id(folder), name):
            break
    tracker.close()
    assert client.get_run(run_id(folder)).info.status == "FINISHED"
    assert client.get_metric_history(run_id(folder), name)
    assert not client.get_metric_history(run_id(folder / case.id), name)


def test_after_a_resume_the_best_trial_is_registered_whichever_command_trained_it(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupted command registers nothing: another trial may still be best."""
    asked, folder, (first, second) = experiment(tracking={"register": "reviews"}), tmp_path / "run", both()
    before = Tracker(store, folder, asked, sweep=True, again="the command")
    before.open()
    ended(before, folder, first)
    before.open_trial(second)
    before.close("KILLED", best=won(first, rows(3)))
    assert list(store.client().search_registered_models()) == []
    after = Tracker(store, folder, asked, sweep=True, again="the command")
    after.open()
    after.settle(first, rows(3), "FINISHED")
    ended(after, folder, second)
    after.close(best=won(first, rows(3)))
    assert "models:/reviews/1 is the model of 01-kteps" in capsys.readouterr().err
    (version,) = store.client().search_model_versions("name = 'reviews'")
    assert version.run_id == run_id(folder / first.id)
