"""Trained models as MLflow models: their description, and a real server that answers requests."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import mlflow.pyfunc
import pandas
import pytest
import requests

import fedtext
from dashboards.packaging import history, package
from dashboards.store import Store
from dashboards.tracking import Tracker
from fedtext.config.experiment import Experiment
from tests.loops import nonempty
from tests.planned import Planned, rows, run_id
from tests.tracking import free_port

SMALL = ["training.rounds=1", "corpus.clients=2", "corpus.train=20", "corpus.test=10", "evaluation.personalize=null"]


def trained(folder: Path, *overrides: str) -> fedtext.Model:
    """Train a small model, whose folder is ``folder / "model"``."""
    return fedtext.run("demo.yaml", *SMALL, *overrides, out=folder).model


def test_a_packaged_folder_is_an_mlflow_model_and_ours(tmp_path: Path) -> None:
    model = trained(tmp_path, "method=fedavg", "save.model=clients")
    folder = tmp_path / "model"
    assert package(folder) == ""
    loaded = mlflow.pyfunc.load_model(str(folder))
    inputs, outputs = loaded.metadata.get_input_schema(), loaded.metadata.get_output_schema()
    assert [(column.name, column.required) for column in inputs.inputs] == [("text", True), ("client", False)]
    assert [column.name for column in outputs.inputs] == ["label", "probability", "probabilities"]
    example = loaded.input_example
    assert list(example.columns) == ["text", "client"]
    assert set(example["client"]) <= set(model.clients)
    assert len(loaded.predict(example)) == len(example)
    answered = loaded.predict(pandas.DataFrame({"text": ["a superb plot"]}))
    (told,) = model.predict(["a superb plot"])
    assert isinstance(told, fedtext.Prediction)
    assert answered["probability"][0] == pytest.approx(told.probability)
    assert fedtext.Model.load(folder).predict(["a superb plot"])[0] == told
    needed = (folder / "requirements.txt").read_text().split()
    assert any(line.startswith("fedtext==") for line in needed)
    assert "+" not in "".join(needed), "no index has builds of a local version"
    written = (folder / "MLmodel").read_bytes()
    assert package(folder) == ""
    assert (folder / "MLmodel").read_bytes() == written, "a run that is resumed keeps the description"


def test_a_request_for_a_client_that_the_model_has_no_part_of_is_refused(tmp_path: Path) -> None:
    """And not answered by the shared model, as it would be if MLflow left the column out."""
    trained(tmp_path, "method=kteps")
    assert package(tmp_path / "model") == ""
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    inputs = loaded.metadata.get_input_schema().inputs
    assert [(column.name, column.required) for column in inputs] == [("text", True), ("client", False)]
    assert len(loaded.predict(pandas.DataFrame({"text": ["a superb plot"]}))) == 1
    with pytest.raises(fedtext.UserError, match=r"this model has no part of client films: train it with save\.model"):
        loaded.predict(pandas.DataFrame({"text": ["a superb plot"], "client": ["films"]}))


def test_a_model_without_a_shared_one_says_why_it_is_not_served(tmp_path: Path) -> None:
    trained(tmp_path / "private", "method=local_only")
    said = package(tmp_path / "private" / "model")
    assert said == "method local_only has no whole shared model: train it with save.model=clients"
    assert not (tmp_path / "private" / "model" / "MLmodel").exists()
    assert history(tmp_path / "private" / "model", "0") == ""
    trained(tmp_path / "kept", "method=local_only", "save.model=clients")
    assert package(tmp_path / "kept" / "model") == ""
    described = mlflow.pyfunc.load_model(str(tmp_path / "kept" / "model")).metadata
    assert [column.required for column in described.get_input_schema().inputs] == [True, True]


@pytest.mark.slow
def test_mlflow_serves_the_model_of_a_run(tmp_path: Path, store: Store) -> None:
    """``mlflow models serve -m runs:/ID/model`` in another folder, asked by HTTP as curl would."""
    model = trained(tmp_path / "run" / "00-fedavg", "method=fedavg")
    experiment = Experiment.model_validate(model.experiment.model_dump(mode="json"))
    case = Planned("00-fedavg", "", False, experiment)
    tracker = Tracker(store, tmp_path / "run", experiment, sweep=False)
    tracker.open_trial(case)
    tracker.deliver(case.id, rows(1))
    tracker.close_trial(case.id, "FINISHED")
    run, port = run_id(tmp_path / "run" / case.id), free_port()
    (named,) = json.loads(store.client().get_run(run).data.tags["mlflow.log-model.history"])
    assert (named["run_id"], named["artifact_path"]) == (run, "model")

    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", f"runs:/{run}/model"]
    command += ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {
        "MLFLOW_TRACKING_URI": store.uri,
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(command, cwd=elsewhere, env=environment, stdout=log, stderr=log, process_group=0)
        address = f"http://127.0.0.1:{port}"
        try:
            while not _answers(address):
                assert server.poll() is None, (tmp_path / "server.log").read_text()
                time.sleep(0.5)
            asked = {"dataframe_records": [{"text": "a superb plot"}, {"text": "dreadful steering"}]}
            answer = requests.post(f"{address}/invocations", json=asked, timeout=60)
            assert answer.status_code == 200, answer.text
            answered = answer.json()["predictions"]
            told = model.predict(["a superb plot", "dreadful steering"])
            assert len(answered) == len(told)
            for row, expected in zip(answered, nonempty(told), strict=True):
                assert isinstance(expected, fedtext.Prediction)
                assert row["label"] == expected.label
                assert row["probabilities"] == pytest.approx(expected.probabilities, abs=1e-6)
            wrong = requests.post(f"{address}/invocations", json={"dataframe_records": [{"review": "x"}]}, timeout=60)
            assert wrong.status_code == 400
            assert "text" in wrong.json()["message"]
            empty = requests.post(f"{address}/invocations", json={"dataframe_records": [{"text": None}]}, timeout=60)
            assert empty.status_code == 400
            assert "Error: predict needs texts: number 0 of the list is " in empty.json()["message"], empty.text
        finally:
            os.killpg(server.pid, 15)
            server.wait(60)


def _answers(address: str) -> bool:
    try:
        return requests.get(f"{address}/ping", timeout=2).ok
    except requests.RequestException:
        return False
