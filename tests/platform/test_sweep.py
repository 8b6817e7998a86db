"""The commands, run as a person runs them, on a Ray that they start themselves."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

import fedtext
from fedtext.runtime.devices import no_cuda
from tests.commands import EXPERIMENT, Forked, accuracies, command, runs, states, undisturbed, write
from tests.loops import nonempty

pytestmark = pytest.mark.ray


def test_a_sweep_from_file_to_mlflow(tmp_path: Path) -> None:
    file = write(tmp_path)
    done = command(tmp_path, "sweep", str(file), "--name", "first")
    assert done.returncode == 0, done.stderr
    for words in (
        "first: 3 trials",
        "01-kteps lambda1=0.01  round 3/3",
        "Sorted by Ap_val",
        "Compare the trials in MLflow",
    ):
        assert words in done.stdout
    assert "\x1b" not in done.stdout, "no terminal, no control characters"

    found = {run.info.run_name: run for run in runs(tmp_path)}
    parent = found.pop("first")
    assert len(found) == 3
    assert all(nonempty(run.data.tags["mlflow.parentRunId"] == parent.info.run_id for run in found.values()))
    assert all(run.info.status == "FINISHED" for run in [parent, *found.values()])
    run = next(run for name, run in found.items() if "0.01" in name)
    assert run.data.params["lambda1"] == "0.01"
    assert run.data.tags["training.optimizer.lr"] == "0.01"
    assert run.data.tags["method"] == "kteps"
    assert run.inputs.dataset_inputs[0].dataset.digest
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    for metric in ("eval/Ag", "loss/loss", "traffic/bytes_up", "traffic/bytes_down", "time/round_seconds"):
        assert [point.step for point in client.get_metric_history(run.info.run_id, metric)] == [1, 2, 3]
    assert [point.step for point in client.get_metric_history(run.info.run_id, "eval/Ap")] == [3]
    assert done.stdout.splitlines()[-1].endswith("runs/first/report/report.html")
    report = tmp_path / "runs" / "first" / "report"
    logged = Path(client.download_artifacts(parent.info.run_id, "report"))
    for name in ("report.html", "tables/results.csv", "tables/results.tex", "tables/results.md"):
        assert (logged / name).read_bytes() == (report / name).read_bytes()
    written = (report / "report.html").read_bytes()
    assert Forked(tmp_path, "report", "first").wait().returncode == 0
    assert (report / "report.html").read_bytes() == written, "the folder alone gives the same page"

    files = {"clients.json", "experiment.yaml", "corpus.txt", "partition.svg", "model"}
    assert files <= {item.path for item in client.list_artifacts(run.info.run_id)}

    plan = tmp_path / "runs" / "first" / "plan.json"
    plan.write_text(json.dumps({"content": json.loads(plan.read_text())["content"]}))  # all that there was once
    again = Forked(tmp_path, "sweep", str(file), "--resume", "first").wait()
    assert again.returncode == 0, again.stderr
    assert json.loads(plan.read_text())["command"] == "sweep"
    assert len(runs(tmp_path)) == 4, "nothing was left to run"

    model = fedtext.Model.load(tmp_path / "runs" / "first" / "02-kteps" / "model")
    assert model.experiment.method.model_dump()["lambda1"] == 0.1
    assert model.labels == ("negative", "positive")
    assert len(model.predict(["a superb kettle", "a dreadful plot"])) == 2
    best = states(tmp_path / "runs" / "first")["02-kteps"]
    assert best == undisturbed(EXPERIMENT | {"method": {"name": "kteps", "lambda1": 0.1}}, tmp_path)


@pytest.mark.slow
def test_a_driver_killed_at_any_moment_is_resumed_by_its_name_alone_to_the_same_weights(
    tmp_path: Path, ready: Path
) -> None:
    shutil.copy(ready, tmp_path / "mlflow.db")  # made anew it takes longer than all rounds
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")

    def recorded() -> int:
        return len(client.search_runs([found.experiment_id for found in client.search_experiments()]))

    rounds, method = 40, {"name": "kteps", "lambda1": 0.1}
    file = write(tmp_path, space={}, method=method, tune={"concurrent": 1})  # fedavg, and after it kteps
    data = tmp_path / "data"
    data.mkdir()
    (data / "vectors.txt").write_text("superb 1 2 3 4 5 6 7 8\nawful -1 -2 -3 -4 -5 -6 -7 -8\n")
    init = {"file": {"path": "vectors.txt"}}
    words = [f"training.rounds={rounds}", f"model.embedding.init={json.dumps(init)}", "--data", str(data)]

    folder = tmp_path / "runs" / "cut"
    words = ["sweep", str(file), *words, "--name", "cut"]
    # Killed before the first round, and when one trial has ended, the other has rounds behind it and before it, and
    # MLflow has both.
    for moment, known in (("plan.json", 0), ("01-kteps/checkpoint/round-0000[0-3][3-9]", 3)):
        driver = Forked(tmp_path, *words)
        deadline = time.monotonic() + 200
        while not list(folder.glob(moment)) or (known and recorded() < known):
            assert time.monotonic() < deadline, f"{moment} never came"
            assert driver.poll() is None, "the sweep ended too early"
            time.sleep(0.02)
        os.kill(driver.pid, signal.SIGKILL)
        assert driver.wait().returncode == -signal.SIGKILL
        words = ["sweep", "--resume", "cut"]
    (ended,) = folder.glob("*/outcome.json")
    when = ended.stat().st_mtime
    ids = {run.info.run_name: run.info.run_id for run in runs(tmp_path)}
    done = Forked(tmp_path, *words).wait()
    assert done.returncode == 0, done.stderr
    assert (ended.parent.name, ended.stat().st_mtime) == ("00-fedavg", when), "a finished trial ran again"

    content = EXPERIMENT | {"training": EXPERIMENT["training"] | {"rounds": rounds}}
    content = content | {"model": EXPERIMENT["model"] | {"embedding": {"dim": 8, "init": init}}}
    for case, its in {"00-fedavg": {"name": "fedavg"}, "01-kteps": method}.items():
        assert states(folder)[case] == undisturbed(content | {"method": its}, tmp_path / case, data)
        assert accuracies(folder)[case] == accuracies(tmp_path / case)["local"]
    after = runs(tmp_path)
    assert len(after) == 3, "the same MLflow runs were continued"
    assert ids.items() <= {run.info.run_name: run.info.run_id for run in after}.items()
    for run in nonempty(after):
        assert run.info.status == "FINISHED"
        if "mlflow.parentRunId" in run.data.tags:
            assert [p.step for p in client.get_metric_history(run.info.run_id, "eval/Ag")] == list(range(1, rounds + 1))


@pytest.mark.slow
def test_one_run_leaves_the_space_aside_and_uses_a_logical_gpu(tmp_path: Path) -> None:
    file = write(tmp_path)
    words = [
        "--num-gpus",
        "1",
        "resources.gpus_per_actor=0.5",
        "resources.cpus_per_actor=0.25",
        "uplink=[clip, gaussian]",
    ]
    done = Forked(tmp_path, "run", str(file), "--name", "one", "training.rounds=1", "--seed", "3", *words).wait()
    assert done.returncode == 0, done.stderr
    for sentence in ("space, baselines and seeds are left aside", "2 client actors of 0.25 CPUs and 0.5 GPUs"):
        assert sentence in done.stdout
    (run,) = runs(tmp_path)
    assert run.info.run_name == "one"
    assert run.data.params["seed"] == "3"
    assert run.data.tags["gpus_per_actor"] == "0.5"
    if reason := no_cuda():  # the share is of nothing, and that is said
        unused = (
            f"2 of 2 client actors reserved 0.5 GPUs each and cannot use that: {reason}: their clients train on the"
        )
        assert done.stderr == f"warning: 00-kteps: {unused} CPU\n"
        assert run.data.tags["gpus.unused"] == f"{unused} CPU"
    content = EXPERIMENT | {"uplink": ["clip", "gaussian"], "seed": 3}
    content = content | {"training": content["training"] | {"rounds": 1}}
    on_gpu = content | {"training": content["training"] | {"engine": "cells"}}  # what auto is where there are GPUs
    assert states(tmp_path / "runs" / "one")["00-kteps"] == undisturbed(on_gpu, tmp_path)

    again = ["run", str(file), "--name", "one"], ["run", str(file), "--resume", "one", "method.lambda1=2", *words]
    overwritten, another = (Forked(tmp_path, *argv).wait() for argv in again)
    assert overwritten.returncode == another.returncode == 2
    assert "continue it by python -m platform.run --resume one, or" in overwritten.stderr
    assert "was begun otherwise (seed 3 -> 0, method.lambda1 0.01 -> 2.0, training.rounds 1 -> 3)" in another.stderr
    longer = Forked(tmp_path, "run", "--resume", "one", "training.rounds=3", "--num-gpus", "1").wait()
    assert longer.returncode == 0, longer.stderr
    on_gpu = on_gpu | {"training": on_gpu["training"] | {"rounds": 3}}
    assert states(tmp_path / "runs" / "one")["00-kteps"] == undisturbed(on_gpu, tmp_path / "longer")
    (run,) = runs(tmp_path)
    points = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_metric_history(run.info.run_id, "eval/Ag")
    assert [point.step for point in points] == [1, 2, 3]


@pytest.mark.slow
def test_asha_stops_trials_but_no_baseline_and_survives_one_that_fails(tmp_path: Path) -> None:
    tune = {"metric": "loss", "mode": "min", "scheduler": "asha", "grace_rounds": 2, "concurrent": 1}
    space = {"training.optimizer.lr": {"grid": [0.01, 1e-7, 1e30]}}
    training = EXPERIMENT["training"] | {"rounds": 3, "local_epochs": 3}
    file = write(tmp_path, space=space, tune=tune, training=training, baselines=["local_only"])
    done = Forked(tmp_path, "sweep", str(file), "--name", "asha", "resources.clients_per_actor=4").wait()
    assert done.returncode == 1, done.stderr
    assert "failed in round 1" in done.stdout
    rounds = {case: len(rows) for case, rows in accuracies(tmp_path / "runs" / "asha").items()}
    assert rounds["00-local_only"] == rounds["01-kteps"] == 3
    assert rounds["02-kteps"] == 2
    assert "stopped" in done.stdout


@pytest.mark.slow
def test_a_client_whose_loss_is_not_finite_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, space={"participation.on_client_error": {"grid": ["fail", "skip"]}}, baselines=[])
    words = ["training.optimizer={name: sgd, lr: 1e30}", "resources.clients_per_actor=4"]
    done = Forked(tmp_path, "sweep", str(file), "--name", "nan", *words).wait()
    assert done.returncode == 1, done.stderr
    assert "failed in round 1: its training loss is" in done.stdout
    trials = [run for run in runs(tmp_path) if "mlflow.parentRunId" in run.data.tags]
    ended = {run.data.params["on_client_error"]: run for run in trials}
    assert {policy: run.info.status for policy, run in ended.items()} == {"fail": "FAILED", "skip": "FAILED"}
    assert "round 1: 0 of 4 clients completed it" in done.stdout


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
    (["FILE", "training.stack=2", "training.engine=reference"], "the engine reference trains clients one by one"),
    (["FILE", "training.engine=triton", "--num-cpus", "2"], "triton needs a GPU"),  # the last two start Ray
    (["FILE", "resources.clients_per_actor=1", "--num-cpus", "2"], "raise clients_per_actor to 2"),
]


def test_bad_input_is_one_sentence_and_status_2_and_leaves_nothing(tmp_path: Path) -> None:
    for number, (words, sentence) in enumerate(BAD):
        home = tmp_path / str(number)
        home.mkdir()
        file = write(home)
        done = Forked(home, "sweep", *(str(file) if word == "FILE" else word for word in words)).wait()
        assert done.returncode == 2, (words, done.stderr)
        assert sentence in done.stderr, words
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert set(os.listdir(home)) <= {"kteps.yaml", "mlflow.db"}, words


def test_bad_input_ends_the_command_itself_so(tmp_path: Path) -> None:
    done = command(tmp_path, "sweep", "nothing.yaml")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
