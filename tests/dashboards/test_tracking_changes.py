"""Runs in MLflow whose experiment has changed since they were described."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from mlflow.exceptions import MlflowException

from dashboards.store import Store
from dashboards.tracking import Tracker
from tests.planned import Planned, experiment, kteps, row, rows, run_id, steps


def of_length(rounds: int) -> Planned:
    case = kteps(1, 0.01)
    training = case.experiment.training.model_copy(update={"rounds": rounds})
    return replace(case, experiment=case.experiment.model_copy(update={"training": training}))


def recorded(store: Store, folder: Path, case: Planned, sweep: bool = False) -> None:
    """Record a trial from its start to its end, or go on with it."""
    tracker = Tracker(store, folder, case.experiment, sweep=sweep)
    tracker.open()
    tracker.open_trial(case)
    tracker.deliver(case.id, rows(case.experiment.training.rounds))
    tracker.close_trial(case.id, "FINISHED")
    tracker.close()


def test_a_run_that_is_made_longer_has_its_present_rounds_as_a_tag_and_in_its_file(
    tmp_path: Path, store: Store
) -> None:
    """MLflow's parameters cannot change."""
    folder, case = tmp_path / "runs/alone", of_length(3)
    for rounds in (2, 3):
        recorded(store, folder, of_length(rounds))
    run = store.client().get_run(run_id(folder / case.id))
    assert (run.data.params["training.rounds"], run.data.tags["training.rounds"]) == ("2", "3")
    assert "method.lambda1" not in run.data.tags, "it has not changed"
    kept = store.client().download_artifacts(run.info.run_id, "experiment.yaml", str(tmp_path))
    assert yaml.safe_load(Path(kept).read_text())["training"]["rounds"] == 3


def test_what_has_changed_arrives_however_late(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is away while the run is made longer, and another process delivers it."""
    folder = tmp_path / "runs/alone"
    recorded(store, folder, of_length(2))
    with monkeypatch.context() as away:
        away.setattr("dashboards.mirror.Mirror.deliver_records", unreachable)
        recorded(store, folder, of_length(3))
    tracker = Tracker(store, folder, of_length(3).experiment, sweep=False)
    tracker.open()
    tracker.settle(of_length(3), rows(3), "FINISHED")
    tracker.close()
    run = store.client().get_run(run_id(folder / kteps(1, 0.01).id))
    assert (run.data.params["training.rounds"], run.data.tags["training.rounds"]) == ("2", "3")


def unreachable(*_: object) -> None:
    raise MlflowException("away")


def test_a_trial_of_a_sweep_that_has_a_default_now_has_it_as_a_tag(tmp_path: Path, store: Store) -> None:
    """Its tags leave defaults out, but the former value would stay."""
    folder, default = tmp_path / "runs/several", experiment(training={}).training.rounds
    for rounds in (2, default):
        recorded(store, folder, of_length(rounds), sweep=True)
    run = store.client().get_run(run_id(folder / kteps(1, 0.01).id))
    assert run.data.tags["training.rounds"] == str(default)


@pytest.mark.parametrize("anew", [False, True], ids=["made longer", "delivered at once"])
def test_a_run_that_is_made_longer_has_each_step_of_a_curve_of_fine_tuning_once(
    tmp_path: Path, store: Store, anew: bool
) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    first, second, third = (replace(row(n), curves={"Ap": {2: 0.1 * n, 4: 0.2 * n}}) for n in (1, 2, 3))
    for records in [[first, second, third]] if anew else [[first], [first, second], [first, second, third]]:
        tracker = Tracker(store, folder, experiment(), sweep=True)
        tracker.open()
        tracker.open_trial(case)
        tracker.deliver(case.id, records)
        tracker.close_trial(case.id, "FINISHED")
    client, run = store.client(), run_id(folder / case.id)
    assert steps(client, run, "fine_tuning/Ap") == [2, 4]
    curves = {
        name: [point.value for point in client.get_metric_history(run, name)]
        for name in client.get_run(run).data.metrics
        if name.startswith("fine_tuning/")
    }
    assert curves == {
        "fine_tuning/Ap": pytest.approx([0.1, 0.2]),
        "fine_tuning/Ap_round_2": pytest.approx([0.2, 0.4]),
        "fine_tuning/Ap_round_3": pytest.approx([0.3, 0.6]),
    }
