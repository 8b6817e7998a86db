"""Processes killed in the middle of a run: it goes on by itself, to the weights of an undisturbed one."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from mlflow import MlflowClient

from fedtext.state.checkpoint import history
from tests.commands import EXPERIMENT, ROOT, Forked, environment, reached, runs, states, undisturbed, write

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROUNDS = 12
GIB = 2**30


def hurt(driver: Forked, title: str, how: signal.Signals = signal.SIGKILL) -> None:
    """A signal to one process of the driver's Ray whose title begins with ``title``."""
    for process in psutil.Process(driver.pid).children(recursive=True):
        try:
            if " ".join(process.cmdline()).startswith(title):
                process.send_signal(how)
                return
        except psutil.Error:  # it ended meanwhile
            continue
    raise AssertionError(f"no process {title}")


def test_a_killed_client_actor_and_a_killed_server_cost_at_most_a_round(tmp_path: Path) -> None:
    rounds = 30
    experiment = EXPERIMENT | {"training": EXPERIMENT["training"] | {"rounds": rounds, "local_epochs": 3}}
    resources = {"max_restarts": 1}  # since the last completed round
    file = write(tmp_path, training=experiment["training"], space={}, baselines=[], resources=resources)
    driver = Forked(tmp_path, "run", str(file), "--name", "hurt")
    checkpoint = tmp_path / "runs" / "hurt" / "00-kteps" / "checkpoint"
    reached(checkpoint, 2, driver)
    hurt(driver, "ray::ClientActor")
    for round_ in (5, 8):
        reached(checkpoint, round_, driver)
        hurt(driver, "ray::ImplicitFunc")
    losses = checkpoint.parent / "losses.json"
    reached(checkpoint, 9, driver)
    while json.loads(losses.read_text())["restarts"] < 3:
        assert driver.poll() is None, "it ended before the driver is killed"
        time.sleep(0.01)
    os.kill(driver.pid, signal.SIGKILL)
    before = driver.wait()
    done = Forked(tmp_path, "run", "--resume", "hurt").wait()
    assert done.returncode == 0, done.stdout + done.stderr

    assert states(tmp_path / "runs" / "hurt")["00-kteps"] == undisturbed(experiment, tmp_path)
    assert before.stderr.count("went back to its last checkpoint, since it lost ") == 3
    for lost in ("a client actor", "its server"):
        assert re.search(rf"lost {lost} \([^)]*\): it goes back to round \d+\n", before.stderr), before.stderr
    assert re.search(r"since it lost a client actor \(.*\): round \d+ was complete \d+\.\d s later", before.stderr)
    (run,) = runs(tmp_path)
    points = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_metric_history(run.info.run_id, "eval/Ag")
    assert [point.step for point in points] == list(range(1, rounds + 1))
    assert run.data.metrics["time/restarts"] == 3, "the command that continues the run counts on"
    kept = json.loads(losses.read_text())
    assert run.data.metrics["time/seconds_lost"] == kept["seconds"] > 0
    assert run.data.tags["losses"] == "; ".join(kept["sentences"])
    assert len(kept["sentences"]) == 3


@pytest.mark.parametrize(
    ("title", "seconds", "said"),
    [
        ("ray::ClientActor", 5, ["since it lost a client actor (", "s being expected"]),
        (
            "ray::ImplicitFunc",
            8,
            ["since it lost its server", "the server of 00-kteps has not responded for 8 s: its process is killed"],
        ),
    ],
)
def test_a_process_that_hangs_is_replaced(title: str, seconds: int, said: list[str], tmp_path: Path) -> None:
    experiment = EXPERIMENT | {"training": EXPERIMENT["training"] | {"rounds": ROUNDS, "local_epochs": 3}}
    resources = {"hang_timeout_s": seconds}
    file = write(tmp_path, training=experiment["training"], space={}, baselines=[], resources=resources)
    driver = Forked(tmp_path, "run", str(file), "--name", "stopped")
    reached(tmp_path / "runs" / "stopped" / "00-kteps" / "checkpoint", 3, driver)
    hurt(driver, title, signal.SIGSTOP)
    done = driver.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "went back to its last checkpoint, " in done.stderr
    assert [sentence for sentence in said if sentence not in done.stderr] == []
    assert states(tmp_path / "runs" / "stopped")["00-kteps"] == undisturbed(experiment, tmp_path)


def used() -> int:
    """Bytes of memory in use on this machine, as Ray's memory monitor counts them."""
    memory = psutil.virtual_memory()
    return memory.total - memory.available


def workers(driver: int) -> set[int]:
    """The processes of the driver's Ray that are a trial's server or a client actor."""
    found = set()
    for process in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(("ray::ImplicitFunc", "ray::ClientActor")):
                found.add(process.pid)
    return found


def take(taken: list[np.ndarray], until: int) -> None:
    """Takes memory until so many bytes are in use on this machine."""
    while used() < until:
        taken.append(np.ones(GIB // 16, np.uint8))  # ones: they are written, and so really taken


@pytest.mark.skipif(psutil.virtual_memory().available < 8 * GIB, reason="too little memory to run out of it on purpose")
@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_what_the_memory_monitor_kills_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    """Memory runs out for real: this process takes what is left below a threshold that Ray was started with, until
    Ray's monitor has killed workers, and gives it back."""
    rounds = 600  # so many that memory has run out before they are over
    training = EXPERIMENT["training"] | {"rounds": rounds, "local_epochs": 3}
    file = write(tmp_path, training=training, space={}, baselines=[], resources={"max_restarts": 50})
    memory = psutil.virtual_memory()
    threshold, taken = used() + int(0.4 * memory.available), list[np.ndarray]()
    monitor = {"memory_usage_threshold": threshold / memory.total, "memory_monitor_refresh_ms": 50}
    env = environment(tmp_path) | {f"RAY_{name}": str(value) for name, value in monitor.items()}
    argv = [sys.executable, "-m", "platform.run", str(file), "--name", "hurt", "--num-cpus", "2"]
    checkpoint = tmp_path / "runs" / "hurt" / "00-kteps" / "checkpoint"
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        try:
            take(taken, threshold - 2 * GIB)  # which takes its time
            reached(checkpoint, 2, driver)
            before = workers(driver.pid)
            while workers(driver.pid) >= before:
                take(taken, threshold + GIB // 8)
                assert driver.poll() is None, "the run ended before anything was killed"
            taken.clear()
        except BaseException:
            driver.kill()
            raise
        out, err = driver.communicate(timeout=900)
    assert driver.returncode == 0, out + err
    assert "went back to its last checkpoint, since it lost" in err
    assert "memory" in err
    assert states(tmp_path / "runs" / "hurt")["00-kteps"] == undisturbed(EXPERIMENT | {"training": training}, tmp_path)
    (run,) = runs(tmp_path)
    points = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_metric_history(run.info.run_id, "eval/Ag")
    assert [point.step for point in points] == list(range(1, rounds + 1))


@pytest.mark.parametrize(("process", "said"), [("raylet", "has died; "), ("gcs_server", "has not answered for 50 s; ")])
def test_where_ray_itself_dies_one_sentence_says_how_to_go_on(process: str, said: str, tmp_path: Path) -> None:
    experiment = EXPERIMENT | {"training": EXPERIMENT["training"] | {"rounds": 3000}}
    file = write(tmp_path, training=experiment["training"], space={}, baselines=[])
    driver = Forked(tmp_path, "run", str(file), "--name", "dead")
    reached(tmp_path / "runs" / "dead" / "00-kteps" / "checkpoint", 2, driver)
    (found,) = (one for one in psutil.Process(driver.pid).children(recursive=True) if one.name() == process)
    found.kill()
    done = driver.wait()
    assert done.returncode == 1
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("error: ")
    assert last.endswith(f"{said}python -m platform.run --resume dead continues it")
    assert "Traceback" not in done.stderr

    rounds = len(history(tmp_path / "runs" / "dead" / "00-kteps" / "checkpoint"))
    expected = undisturbed(experiment | {"training": experiment["training"] | {"rounds": rounds}}, tmp_path)
    assert states(tmp_path / "runs" / "dead")["00-kteps"] == expected
