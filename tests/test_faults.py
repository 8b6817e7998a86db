"""Processes killed in the middle of a run: it goes on by itself, to the weights of an undisturbed one."""

import signal
import time
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from tests.commands import EXPERIMENT, Forked, runs, states, undisturbed, write

pytestmark = pytest.mark.ray
ROUNDS = 12


def kill(driver: Forked, title: str) -> None:
    """SIGKILL to one process of the driver's Ray whose title begins with ``title``."""
    for process in psutil.Process(driver.pid).children(recursive=True):
        try:
            if " ".join(process.cmdline()).startswith(title):
                process.send_signal(signal.SIGKILL)
                return
        except psutil.Error:  # it ended meanwhile
            continue
    raise AssertionError(f"no process {title}")


def reached(checkpoint: Path, round_: int, driver: Forked) -> None:
    """Waits until the run's checkpoint is at ``round_`` or later."""
    deadline = time.monotonic() + 200
    while not any(int(path.name.partition("-")[2]) >= round_ for path in checkpoint.glob("round-*")):
        assert time.monotonic() < deadline
        assert driver.poll() is None, "the run ended too early"
        time.sleep(0.02)


def test_a_killed_client_actor_and_a_killed_server_cost_at_most_a_round(tmp_path: Path) -> None:
    experiment = EXPERIMENT | {"training": EXPERIMENT["training"] | {"rounds": ROUNDS, "local_epochs": 3}}
    file = write(tmp_path, training=experiment["training"], space={}, baselines=[])
    driver = Forked(tmp_path, "run", str(file), "--name", "hurt")
    checkpoint = tmp_path / "runs" / "hurt" / "00-kteps" / "checkpoint"
    reached(checkpoint, 2, driver)
    kill(driver, "ray::ClientActor")
    reached(checkpoint, 5, driver)
    kill(driver, "ray::ImplicitFunc")
    done = driver.wait()
    assert done.returncode == 0, done.stdout + done.stderr

    assert states(tmp_path / "runs" / "hurt")["00-kteps"] == undisturbed(experiment, tmp_path)
    (run,) = runs(tmp_path)
    points = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_metric_history(run.info.run_id, "Ag")
    assert [point.step for point in points] == list(range(1, ROUNDS + 1))
