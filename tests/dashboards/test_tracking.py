"""Tracking on real MLflow stores."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dashboards.groups import Group, metrics_of
from dashboards.mirror import Description, Mirror
from dashboards.names import logged
from dashboards.records import metric_batches
from dashboards.store import Store
from dashboards.tracking import Tracker
from dashboards.trial import About, Dataset, Outcome, flatten
from fedtext.accounting.entry import Measured
from fedtext.canaries.measure import metrics as measured_metrics
from fedtext.config.experiment import Experiment
from tests.dashboards.test_views import view_of
from tests.loops import nonempty
from tests.planned import START, Planned, experiment, kteps, row, rows, run_id, steps, table_of, won


def test_a_case_with_several_seeds_has_a_run_with_their_mean_and_deviation(tmp_path: Path, store: Store) -> None:
    folder, case = tmp_path / "runs/seeds", kteps(1, 0.01)
    *cases, third = [
        replace(case, id=f"01-kteps-seed{seed}", experiment=case.experiment.model_copy(update={"seed": seed}))
        for seed in (0, 1, 2)
    ]
    tracker = Tracker(store, folder, experiment(seeds=2), sweep=True)
    tracker.open()
    outcomes = {case.id: Outcome("finished", tuple(rows(3, level=0.6 + 0.1 * n))) for n, case in enumerate(cases)}
    for case in cases:
        tracker.open_trial(case)
        tracker.deliver(case.id, outcomes[case.id].rows)
        tracker.close_trial(case.id, "FINISHED")
    group = Group("01-kteps", tuple(cases))
    found = group, metrics_of(group, outcomes)
    tracker.close(best=found, found=[found])
    client = store.client()
    together, parent = client.get_run(run_id(folder / "01-kteps")), client.get_run(run_id(folder))
    assert together.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert together.info.run_name == "01-kteps lambda1=0.01: 2 seeds"
    assert together.data.metrics["eval/Ag"] == pytest.approx(0.68)
    assert together.data.metrics["eval/Ag.std"] == pytest.approx(0.1 / 2**0.5)
    assert parent.data.metrics["best.Ap_val"] == pytest.approx(0.68)
    for case in nonempty(cases):
        assert client.get_run(run_id(folder / case.id)).data.tags["fedtext.group"] == "01-kteps"
    assert together.data.tags["seeds"] == "0, 1"
    assert "seed" not in together.data.tags
    described = client.get_experiment(together.info.experiment_id)
    shown = view_of(described.tags, "seeds")["searchFilter"]
    found_runs = client.search_runs([together.info.experiment_id], shown)
    assert client.get_run(run_id(folder / cases[1].id)).data.params["seed"] == "1"
    assert "seed" not in together.data.params
    assert [run.info.run_id for run in found_runs] == [together.info.run_id]

    wider = Group("01-kteps", (*cases, third))
    outcomes[third.id] = Outcome("finished", tuple(rows(3, level=0.8)))
    later = Tracker(store, folder, experiment(seeds=3), sweep=True)
    later.open()
    later.close(found=[(wider, metrics_of(wider, outcomes))])
    assert run_id(folder / "01-kteps") == together.info.run_id
    followed = client.get_run(together.info.run_id)
    assert followed.info.run_name == "01-kteps lambda1=0.01: 3 seeds"
    assert followed.data.tags["seeds"] == "0, 1, 2"
    assert followed.data.tags["mlflow.runName"] == followed.info.run_name
    assert followed.data.metrics["eval/Ag"] == pytest.approx(0.73)
    assert followed.info.status == "FINISHED"


def test_a_sweep_is_a_parent_with_a_complete_child_per_trial(tmp_path: Path, store: Store) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "runs/first"
    swept = experiment(space={"method.lambda1": {"grid": [0.0, 0.01]}})
    dataset, files = Dataset("demo", "abc123", "generated", {"num_rows": 7}), {"corpus.txt": "a table"}
    about = About({"reveals.0": "the words a client uses"}, dataset, files)
    tracker = Tracker(store, folder, swept, sweep=True, tags={"cluster.nodes": "2"})
    tracker.open()
    tracker.open_trial(case, about)
    for each in rows(3):
        tracker.deliver(case.id, [each])
    tracker.close_trial(case.id, "FINISHED")
    tracker.close(best=won(case, rows(3)))

    client = store.client()
    parent, child = client.get_run(run_id(folder)), client.get_run(run_id(folder / case.id))
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")
    assert (parent.info.run_name, child.info.run_name) == ("first", "01-kteps lambda1=0.01")
    assert parent.data.tags["best.case"] == case.id
    explained = "\n- `Ap`: accuracy of each client's personalised model on its own texts, mean over clients\n"
    described = client.get_experiment(child.info.experiment_id)
    for tags in (parent.data.tags, child.data.tags, described.tags):
        assert explained in tags["mlflow.note.content"]
    for name in ("epsilon", "delta"):  # of the trial's noise
        assert f"\n- `{name}`: " in child.data.tags["mlflow.note.content"]
    assert parent.data.metrics["best.Ap_val"] == pytest.approx(0.73)
    assert parent.data.params == {}, "it is no trial"
    assert '- `method.lambda1`: `{"grid": [0.0, 0.01]}`' in parent.data.tags["mlflow.note.content"]

    path = client.download_artifacts(child.info.run_id, "experiment.yaml", str(tmp_path))
    written = yaml.safe_load(Path(path).read_text())
    assert Path(client.download_artifacts(child.info.run_id, "corpus.txt", str(tmp_path))).read_text() == "a table"
    assert child.data.params == {"method": "kteps", "lambda1": "0.01"}, "what varies"
    assert child.data.tags["uplink.0.gaussian.sigma"] == "0.01"
    assert child.data.tags["method.lambda1"] == "0.01"
    assert "training.optimizer.persist" not in child.data.tags, "a default"
    assert written["training"]["optimizer"]["persist"] is False
    assert Experiment.model_validate(written) == case.experiment

    tags = child.data.tags
    expected = {"method": "kteps", "corpus": "demo", "seed": "0", "baseline": "false", "cluster.nodes": "2"}
    expected |= {"fedtext.run": "first", "fedtext.case": case.id, "reveals.0": "the words a client uses"}
    assert expected.items() <= tags.items()
    assert {"version.python", "version.torch", "version.ray", "version.mlflow"} <= tags.keys()
    assert [(each.step, each.timestamp) for each in client.get_metric_history(child.info.run_id, "eval/Ag")] == [
        (1, 1_700_000_005_000),
        (2, 1_700_000_010_000),
        (3, 1_700_000_015_000),
    ]
    (used,) = child.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("demo", "abc123")
    assert (used.tags[0].key, used.tags[0].value) == ("mlflow.data.context", "training")

    table = table_of(store, child.info.run_id)
    assert list(table.columns) == ["client", "round", "Ag"]
    assert len(table) == 6
    assert json.loads(tags["mlflow.loggedArtifacts"]) == [{"path": "clients.json", "type": "table"}]
    assert child.info.artifact_uri.startswith((tmp_path / "mlartifacts").as_uri())


def test_a_trial_with_canaries_has_the_confidence_of_its_bound_although_it_is_a_default(
    tmp_path: Path, store: Store
) -> None:
    folder, planned = tmp_path / "runs/first", kteps(1, 0.01)
    changes = {"uplink": ["clip", {"gaussian": {"sigma": 1.0}}], "privacy": {"canaries": {}}}
    case = replace(planned, experiment=experiment(**changes))
    tracker = Tracker(store, folder, case.experiment, sweep=True)
    tracker.open()
    tracker.open_trial(case)
    found = Measured(epsilon=1.0, confidence=0.95, canaries=1000, guesses=125, right=90, gaussian=None, estimate=None)
    tracker.deliver(case.id, [row(1, **measured_metrics(found))])
    tracker.close_trial(case.id, "FINISHED")
    child = store.client().get_run(run_id(folder / case.id))
    name = logged("epsilon_lower_confidence")
    assert child.data.metrics[name] == 0.95
    assert "\n- `epsilon_lower_confidence`: probability " in child.data.tags["mlflow.note.content"]


def test_a_single_run_has_no_parent_and_carries_the_name_of_the_run(tmp_path: Path, store: Store) -> None:
    case, folder = Planned("00-kteps", "kteps", False, experiment()), tmp_path / "runs/once"
    tracker = Tracker(store, folder, case.experiment, sweep=False)
    tracker.open()
    tracker.open_trial(case)
    tracker.deliver(case.id, [row(1)])
    tracker.close_trial(case.id, "FAILED", "client dvd failed in round 2:\n its loss is not finite")
    tracker.close("FAILED")
    (found,) = store.client().search_runs(["1"])
    assert (found.info.run_name, found.info.status) == ("once", "FAILED")
    assert found.data.tags["error"] == "client dvd failed in round 2: its loss is not finite"
    assert "mlflow.parentRunId" not in found.data.tags
    assert found.data.params["training.optimizer.persist"] == "false", "nothing is known to vary"
    dump = case.experiment.model_dump(mode="json")
    left = {key: value for key, value in dump.items() if key not in ("space", "tune", "baselines", "seeds")}
    assert found.data.params == flatten(left)
    assert not (folder / "tracking.json").exists()


def test_large_histories_and_many_parameters_are_sent_in_batches(tmp_path: Path, store: Store) -> None:
    client = store.client()
    mirror = Mirror(tmp_path / "case", store.shown)
    mirror.open(Description("large", START, params={f"key.{n}": "x" * 500 for n in range(230)}))
    mirror.offer([row(n) for n in range(1, 401)])
    mirror.deliver_records(client, client.create_experiment("large"), None)
    found = client.get_run(str(mirror.run_id))
    assert len(found.data.params) == 230
    assert steps(client, found.info.run_id, "loss") == list(range(1, 401))
    wide = replace(row(1), metrics={f"m{n}": float(n) for n in range(2500)})
    sizes = [len(points) for _, points in metric_batches([wide, row(2)])]
    assert max(sizes) <= 1000
    assert sum(sizes) == 2500 + 6


def test_names_and_values_are_those_of_the_yaml() -> None:
    flat = flatten({"a": {"b": [1, {"c": None}], "d": True}, "e": [], "url": "http://me:secret@host/x", "lr": 1e-05})
    assert flat == {"a.b.0": "1", "a.b.1.c": "null", "a.d": "true", "url": "http://me:***@host/x", "lr": "1e-05"}
    assert flatten({"long": "x" * 9000, "odd#name": 1}) == {"long": "x" * 500, "odd_name": "1"}


def test_a_resumed_sweep_continues_its_runs_and_rows_offered_again_stand_once(tmp_path: Path, store: Store) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    first = Tracker(store, folder, experiment(), sweep=True)
    first.open()
    first.open_trial(case)
    first.deliver(case.id, rows(2))
    first.close_trial(case.id, "FAILED", "a cause")
    first.close("KILLED")
    ids = run_id(folder), run_id(folder / case.id)

    second = Tracker(store, folder, experiment(), sweep=True)
    second.open()
    second.open_trial(case)
    client = store.client()
    assert [client.get_run(each).info.status for each in ids] == ["RUNNING", "RUNNING"]
    replayed = replace(row(2), time=START + 99)  # computed again after the process died, at another time
    for offered in (rows(1), [replayed], rows(3), rows(3)):
        second.deliver(case.id, offered)
    second.close_trial(case.id, "FINISHED")
    second.close()
    assert (run_id(folder), run_id(folder / case.id)) == ids
    assert len(client.search_runs(["1"])) == 2
    found = client.get_run(ids[1])
    assert found.info.status == "FINISHED"
    assert "error" not in found.data.tags
    for name in ("Ag", "loss", "round_seconds"):
        assert steps(client, ids[1], name) == [1, 2, 3]
    assert len(table_of(store, ids[1])) == 6

    third = Tracker(store, folder, experiment(), sweep=True)
    third.open()
    third.settle(case, rows(3), "FINISHED")
    third.close()
    assert client.get_run(ids[1]).info.end_time == found.info.end_time


def test_a_process_that_dies_while_a_run_is_created_does_not_create_it_twice(tmp_path: Path, store: Store) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    first = Tracker(store, folder, experiment(), sweep=True)
    first.open()
    first.open_trial(case)
    state = json.loads((folder / case.id / "tracking.json").read_text())
    (folder / case.id / "tracking.json").write_text(json.dumps(state | {"run_id": None}))  # as it was just before
    second = Tracker(store, folder, experiment(), sweep=True)
    second.open()
    second.open_trial(case)
    second.deliver(case.id, rows(1))
    assert run_id(folder / case.id) == state["run_id"]
    assert len(store.client().search_runs(["1"])) == 2


def test_the_model_of_a_finished_trial_is_an_artifact_however_late_it_is_delivered(
    tmp_path: Path, store: Store
) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "runs/first"
    (folder / case.id / "model" / "tokenizer").mkdir(parents=True)
    (folder / case.id / "model" / "model.json").write_text("{}")
    (folder / case.id / "model" / "tokenizer" / "vocab.txt").write_text("a")
    tracker = Tracker(store, folder, experiment(), sweep=True)
    tracker.open()
    for planned in (case, kteps(2, 0.1), Planned("03-kept", "", False, experiment(save={"model": "clients"}))):
        tracker.open_trial(planned)
        (folder / planned.id / "model").mkdir(parents=True, exist_ok=True)
        tracker.deliver(planned.id, rows(3))
    tracker._trials[case.id].files_retry_at = time.monotonic() + 60  # as after files that could not be delivered
    tracker.close_trial(case.id, "FINISHED")
    assert Mirror(folder / case.id, store.shown).model == str(folder / case.id / "model"), "it is owed"
    tracker.close_trial("02-kteps", "FAILED")
    tracker.close_trial("03-kept", "FINISHED")
    tracker.close()
    client = store.client()
    found = {item.path for item in client.list_artifacts(run_id(folder / case.id), "model")}
    assert found == {"model/model.json", "model/tokenizer"}
    for other in ("02-kteps", "03-kept"):
        assert not client.list_artifacts(run_id(folder / other), "model"), other
    assert not Mirror(folder / case.id, store.shown).model


def test_curves_of_fine_tuning_have_steps_of_their_own_and_hide_no_round(tmp_path: Path, store: Store) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    tracker = Tracker(store, folder, experiment(), sweep=True)
    tracker.open()
    tracker.open_trial(case)
    tracker.deliver(case.id, [replace(row(1), curves={"Ap": {2: 0.5, 3: 0.75}})])
    client, run = store.client(), run_id(folder / case.id)
    points = client.get_metric_history(run, "fine_tuning/Ap")
    assert [(point.step, point.value) for point in points] == [(2, 0.5), (3, 0.75)]
    later = Tracker(store, folder, experiment(), sweep=True)
    later.open()
    later.open_trial(case)
    later.deliver(case.id, rows(3))
    assert steps(client, run, "loss") == [1, 2, 3], "steps 2 and 3 were not of rounds"
