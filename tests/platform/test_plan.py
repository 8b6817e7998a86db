"""``--dry-run``: what would run, and where, without running it."""

import platform.run
import platform.sweep
from pathlib import Path

import pytest
import ray
import torch

from dashboards.trial import Outcome
from sweeps.folder import RunFolder
from tests.commands import ROOT, Forked, write
from tests.planned import rows

ASSUMED = ["--dry-run", "--num-cpus", "16", "--num-gpus", "8"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_the_plan_of_a_cluster_that_is_only_assumed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = ray.is_initialized()
    assert platform.sweep.main([str(write(home)), *ASSUMED]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:4] == [
        "kteps: 3 trials, 1 of them baselines",
        "    00-fedavg",
        "    01-kteps lambda1=0.01",
        "    02-kteps lambda1=0.1",
    ]
    for sentence in (
        "3 trials side by side, each with 4 client actors of 1 CPU and 0.5 GPUs: 12 of 16 CPUs and 6 of 8 GPUs on 1",
        "corpus demo: 4 clients, ",
        "engine cells: ",
        "the server learns each client's number of train texts",
        "as they are",
    ):
        assert sentence in out
    reserved = f"6 of 8 GPUs would be reserved, but here torch {torch.__version__} has no CUDA"
    assert (reserved in out) == (not torch.version.cuda and not torch.version.hip)
    assert [path.name for path in home.iterdir()] == ["kteps.yaml"], "something was made"
    assert ray.is_initialized() == began, "Ray was started"


def test_the_plan_of_one_run_and_of_an_experiment_that_does_not_fit(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert platform.run.main([str(write(home)), *ASSUMED, "tune.concurrent=1", "resources.gpus_per_actor=0"]) == 0
    out = capsys.readouterr().out
    assert "kteps: 1 trials\n" in out
    assert "one trial at a time, with 4 client actors of 1 CPU: 4 of 16 CPUs and 0 of 8 GPUs on 1 node" in out
    assert "reserved" not in out
    done = Forked(home, "run", str(home / "kteps.yaml"), *ASSUMED, "resources.cpus_per_actor=17").wait()
    assert done.returncode == 2
    assert done.stderr == (
        "error: resources: no node has 17 CPUs and 0.125 GPUs for a client actor; the cluster has 16 CPUs and 8 GPUs "
        "on 1 node\n"
    )


def test_what_has_ended_takes_no_share_of_the_plan(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedtext.config.files import load

    content, experiment = load(str(write(home)), [], {})
    folder = RunFolder.new(home / "runs", "cut", "kteps", "sweep")
    folder.create(content, experiment, "sweep")
    folder.record("01-kteps", Outcome("finished", tuple(rows(3))))
    folder.record("02-kteps", Outcome("stopped", tuple(rows(1))))
    assert platform.sweep.main(["--resume", "cut", *ASSUMED]) == 0
    out = capsys.readouterr().out
    assert "    01-kteps lambda1=0.01  (finished before)\n    02-kteps lambda1=0.1  (stopped before)\n" in out
    assert "one trial at a time, with 4 client actors of 1 CPU and 1 GPU: 4 of 16 CPUs and 4 of 8 GPUs" in out


@pytest.mark.ray
def test_the_plan_of_this_machine_is_that_of_ray(home: Path) -> None:
    file = write(home)
    done = Forked(home, "sweep", str(file), "--dry-run", "--num-cpus", "3", "resources.gpus_per_actor=0").wait()
    assert done.returncode == 0, done.stderr
    assert "side by side, each with 1 client actor of 1 CPU: 3 of 3 CPUs on 1 node" in done.stdout
    assert [path.name for path in home.iterdir()] == ["kteps.yaml"]
    assert not (ROOT / "mlflow.db").exists() or "mlflow.db" not in done.stdout
