"""The commands, run as a person runs them, on a Ray that they start themselves."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.commands import EXPERIMENT, ROOT, accuracies, command, environment, refused, runs, states, undisturbed, write

pytestmark = pytest.mark.ray


def test_a_sweep_from_file_to_mlflow(tmp_path: Path) -> None:
    file = write(tmp_path)
    done = command(tmp_path, "sweep", str(file), "--name", "first")
    assert done.returncode == 0, done.stderr
    for words in (
        "first: 4 trials",
        "02-kteps lambda1=0.01  round 3/3",
        "Sorted by Ap_val",
        "Compare the trials in MLflow",
    ):
        assert words in done.stdout
    assert "\x1b" not in done.stdout, "no terminal, no control characters"

    found = {run.info.run_name: run for run in runs(tmp_path)}
    parent = found.pop("first")
    assert len(found) == 4
    assert all(run.data.tags["mlflow.parentRunId"] == parent.info.run_id for run in found.values())
    assert all(run.info.status == "FINISHED" for run in [parent, *found.values()])
    run = next(run for name, run in found.items() if "0.01" in name)
    assert run.data.params["method.lambda1"] == "0.01"
    assert run.data.params["training.optimizer.lr"] == "0.01"
    assert run.data.tags["method"] == "kteps"
    assert run.inputs.dataset_inputs[0].dataset.digest
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    for metric in ("Ag", "loss", "bytes_up", "bytes_down", "round_seconds"):
        assert [point.step for point in client.get_metric_history(run.info.run_id, metric)] == [1, 2, 3]
    assert [point.step for point in client.get_metric_history(run.info.run_id, "Ap")] == [3]
    assert {"clients.json", "experiment.yaml"} <= {item.path for item in client.list_artifacts(run.info.run_id)}

    plan = tmp_path / "runs" / "first" / "plan.json"
    plan.write_text(json.dumps({"content": json.loads(plan.read_text())["content"]}))  # all that there was once
    again = command(tmp_path, "sweep", str(file), "--resume", "first")
    assert again.returncode == 0, again.stderr
    assert json.loads(plan.read_text())["command"] == "sweep"
    assert len(runs(tmp_path)) == 5, "nothing was left to run"

    best = states(tmp_path / "runs" / "first")["03-kteps"]
    assert best == undisturbed(EXPERIMENT | {"method": {"name": "kteps", "lambda1": 0.1}}, tmp_path)


def test_a_driver_killed_at_any_moment_is_resumed_by_its_name_alone_to_the_same_weights(tmp_path: Path) -> None:
    file = write(tmp_path, space={"method.lambda1": {"grid": [0.0, 0.1]}})
    data = tmp_path / "data"
    data.mkdir()
    (data / "vectors.txt").write_text("superb 1 2 3 4 5 6 7 8\nawful -1 -2 -3 -4 -5 -6 -7 -8\n")
    words = [str(file), "--data", str(data), "training.rounds=6", "model.embedding.init={file: {path: vectors.txt}}"]
    whole = command(tmp_path, "sweep", *words, "--name", "whole")
    assert whole.returncode == 0, whole.stderr

    folder = tmp_path / "runs" / "cut"
    argv = [sys.executable, "-m", "platform.sweep", *words, "--name", "cut"]
    # Killed before the first round, and late in the second half: one trial has ended, another is at work.
    moments = (folder / "plan.json", folder / "02-kteps" / "checkpoint")
    ended_before: dict[str, float] = {}
    for moment in moments:
        driver = subprocess.Popen(argv, cwd=ROOT, env=environment(tmp_path), stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 200
        while not moment.exists() and not list(moment.parent.glob("round-00000[3-6]")):
            assert time.monotonic() < deadline, f"{moment} never came"
            assert driver.poll() is None, "the sweep ended too early"
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        for case, when in ended_before.items():
            assert (folder / case / "outcome.json").stat().st_mtime == when, "a finished trial ran again"
        ended_before = {path.parent.name: path.stat().st_mtime for path in folder.glob("*/outcome.json")}
        argv = [sys.executable, "-m", "platform.sweep", "--resume", "cut"]
    assert ended_before, "the last kill came after at least one trial had finished"
    ids = {run.info.run_name: run.info.run_id for run in runs(tmp_path)}
    done = subprocess.run(argv, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    assert states(folder) == states(tmp_path / "runs" / "whole")
    assert accuracies(folder) == accuracies(tmp_path / "runs" / "whole")
    after = runs(tmp_path)
    assert len(after) == 2 * 4, "the same MLflow runs were continued"
    assert ids.items() <= {run.info.run_name: run.info.run_id for run in after}.items()
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    for run in after:
        assert run.info.status == "FINISHED"
        if "mlflow.parentRunId" in run.data.tags:
            assert [p.step for p in client.get_metric_history(run.info.run_id, "Ag")] == [1, 2, 3, 4, 5, 6]


def test_one_run_leaves_the_space_aside_and_uses_a_logical_gpu(tmp_path: Path) -> None:
    file = write(tmp_path)
    words = [
        "--num-gpus",
        "2",
        "resources.gpus_per_actor=0.5",
        "resources.cpus_per_actor=0.25",
        "uplink=[clip, gaussian]",
    ]
    done = command(tmp_path, "run", str(file), "--name", "one", "training.rounds=1", "--seed", "3", *words)
    assert done.returncode == 0, done.stderr
    for sentence in ("space, baselines and seeds are left aside", "4 client actors of 0.25 CPUs, 0.5 GPUs"):
        assert sentence in done.stdout
    (run,) = runs(tmp_path)
    assert run.info.run_name == "one"
    assert run.data.params["seed"] == "3"
    assert run.data.tags["gpus_per_actor"] == "0.5"
    content = EXPERIMENT | {"uplink": ["clip", "gaussian"], "seed": 3}
    content = content | {"training": content["training"] | {"rounds": 1}}
    assert states(tmp_path / "runs" / "one")["00-kteps"] == undisturbed(content, tmp_path)

    again = ["run", str(file), "--name", "one"], ["run", str(file), "--resume", "one", "training.rounds=2", *words]
    overwritten, another = refused(tmp_path, [(str(tmp_path), argv) for argv in again])
    assert overwritten[0] == another[0] == 2
    assert "continue it by python -m platform.run --resume one, or" in overwritten[1]
    assert "was begun with another" in another[1]


def test_asha_stops_trials_but_no_baseline_and_survives_one_that_fails(tmp_path: Path) -> None:
    tune = {"metric": "loss", "mode": "min", "scheduler": "asha", "grace_rounds": 4, "concurrent": 1}
    space = {"training.optimizer.lr": {"grid": [0.01, 1e-7, 1e30]}}
    training = EXPERIMENT["training"] | {"rounds": 5, "local_epochs": 3}
    file = write(tmp_path, space=space, tune=tune, training=training, baselines=["local_only"])
    done = command(tmp_path, "sweep", str(file), "--name", "asha")
    assert done.returncode == 1, done.stderr
    assert "failed in round 1" in done.stdout
    rounds = {case: len(rows) for case, rows in accuracies(tmp_path / "runs" / "asha").items()}
    assert rounds["00-local_only"] == rounds["01-kteps"] == 5
    assert rounds["02-kteps"] == 4
    assert "stopped" in done.stdout


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_client_whose_loss_is_not_finite_is_named(tmp_path: Path, policy: str) -> None:
    file = write(tmp_path, space={}, baselines=[])
    words = ["training.optimizer={name: sgd, lr: 1e30}", f"participation.on_client_error={policy}"]
    done = command(tmp_path, "run", str(file), "--name", "nan", *words)
    if policy == "fail":
        assert done.returncode == 1
        assert "failed in round 1: its training loss is" in done.stdout
        (run,) = runs(tmp_path)
        assert run.info.status == "FAILED"
    else:
        assert done.returncode == 0, done.stderr
        (run,) = runs(tmp_path)
        assert run.data.metrics["clients_failed"] == 4


BAD = [
    (["nothing.yaml"], "there is no experiment file nothing.yaml"),
    ([], "name an experiment file"),
    (["FILE", "method.lamda1=3"], "there is no key method.lamda1; did you mean lambda1?"),
    (["FILE", "corpus={name: fdu, validation: 0.1}", "--data", "tests"], "fdu_mtl.parquet"),
    (["FILE", "--data", "no-such-folder"], "there is no folder no-such-folder"),
    (["FILE", "--resume", ""], "there is no run"),
    (["FILE", "--name", "../elsewhere"], "cannot be a folder's name"),
    (["FILE", "--address", "ray://127.0.0.1:10001"], "is a Ray client address"),
    (["FILE", "--resume", "nobody"], "there is no run nobody"),
    (["FILE", "tracking.uri=http://127.0.0.1:9"], "the MLflow server at http://127.0.0.1:9 cannot be reached"),
    (["FILE", "--address", "127.0.0.1:9", "--num-cpus", "1"], "are for a Ray started here"),
    (["FILE", "training.stack=2", "training.engine=reference"], "the engine reference trains clients one by one"),
    (["FILE", "training.engine=triton", "--num-cpus", "2"], "triton needs a GPU"),  # the last two start Ray
    (["FILE", "resources.clients_per_actor=1", "--num-cpus", "2"], "raise clients_per_actor to 2"),
]


def test_bad_input_is_one_sentence_and_status_2_and_leaves_nothing(tmp_path: Path) -> None:
    cases = []
    for number, (words, _) in enumerate(BAD):
        home = tmp_path / str(number)
        home.mkdir()
        file = write(home)
        cases.append((str(home), ["sweep", *[str(file) if word == "FILE" else word for word in words]]))
    said = refused(tmp_path, cases)
    for (home, words), (status, stderr), (_, sentence) in zip(cases, said, BAD, strict=True):
        assert status == 2, (words, stderr)
        assert sentence in stderr, words
        assert len(stderr.strip().splitlines()) == 1, stderr
        assert set(os.listdir(home)) <= {"kteps.yaml", "mlflow.db"}, words


def test_bad_input_ends_the_command_itself_so(tmp_path: Path) -> None:
    done = command(tmp_path, "sweep", "nothing.yaml")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
