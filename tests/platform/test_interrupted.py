"""Ctrl-C while trials run: what they completed is recorded, and a resume ends with the same weights."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.commands import EXPERIMENT, ROOT, Forked, environment, reached, runs, states, undisturbed, write

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROUNDS = 40


def test_ctrl_c_while_trials_run(tmp_path: Path, ready: Path) -> None:
    shutil.copy(ready, tmp_path / "mlflow.db")
    file, folder = write(tmp_path, space={}, baselines=[]), tmp_path / "runs" / "cut"
    words = ["sweep", str(file), "--name", "cut", f"training.rounds={ROUNDS}"]
    argv, pipe = [sys.executable, "-m", f"platform.{words[0]}", *words[1:]], subprocess.PIPE
    # A group of its own, as a terminal makes one: Ctrl-C reaches the command and what it has started.
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment(tmp_path), stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as driver:
        try:
            reached(folder / "00-kteps" / "checkpoint", 3, driver)
            os.killpg(driver.pid, signal.SIGINT)
            out, err = driver.communicate(timeout=120)
        except BaseException:
            driver.kill()
            raise
    assert driver.returncode == 130, out + err
    assert "\ninterrupted, and 1 trial has not ended: python -m platform.sweep --resume cut continues it\n" in out
    assert err == ""
    assert (folder / "report" / "report.html").is_file()
    found = {run.info.run_name: run for run in runs(tmp_path)}
    assert found["cut"].info.status == "KILLED"
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (trial,) = (run for name, run in found.items() if name != "cut")
    completed = [point.step for point in client.get_metric_history(trial.info.run_id, "eval/Ag")]
    assert completed == list(range(1, len(completed) + 1))
    assert completed  # the record of the last round may have been on its way

    done = Forked(tmp_path, "sweep", "--resume", "cut").wait()
    assert done.returncode == 0, done.stderr
    content = EXPERIMENT | {"training": EXPERIMENT["training"] | {"rounds": ROUNDS}}
    assert states(folder)["00-kteps"] == undisturbed(content, tmp_path)
    points = client.get_metric_history(trial.info.run_id, "eval/Ag")
    assert [point.step for point in points] == list(range(1, ROUNDS + 1))
