"""Population-based training on Ray, and the same population after a kill."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedtext.state.checkpoint import history
from tests.commands import EXPERIMENT, Forked, command, runs, states
from tests.loops import nonempty

POPULATION: dict[str, Any] = EXPERIMENT | {
    "corpus": EXPERIMENT["corpus"] | {"clients": 2},
    "method": "fedavg",
    "baselines": ["local_only"],
    "evaluation": {"personalize": None},
    "space": {"training.optimizer.lr": {"loguniform": [0.001, 0.1]}},
    "tune": {"scheduler": "pbt", "metric": "loss", "samples": 4, "interval": 1},
}


@pytest.mark.ray
@pytest.mark.slow
def test_a_population_and_the_same_one_after_a_kill(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for home in (whole, killed):
        home.mkdir()
        (home / "population.yaml").write_text(yaml.safe_dump(POPULATION))
    words = ("sweep", str(whole / "population.yaml"), "--name", "run", "--num-cpus", "2")
    done = command(whole, *words, timeout=600)
    assert done.returncode == 0, done.stderr
    run = whole / "runs" / "run"
    generations = json.loads((run / "population.json").read_text())
    assert [len(one["exploits"]) for one in generations] == [1, 1], "a quarter of four, after rounds 1 and 2 of 3"
    members = [f"{number:02d}-fedavg" for number in range(1, 5)]
    records = {case: history(run / case / "checkpoint") for case in ["00-local_only", *members]}
    assert {len(found) for found in nonempty(list(records.values()))} == {3}
    last = generations[-1]["exploits"][0]
    taker, giver = members[last["member"]], members[last["donor"]]
    assert records[taker][:2] == records[giver][:2], "its rounds until then are those of the other"
    assert records[taker][2].metrics["loss"] != records[giver][2].metrics["loss"]
    rate = f"{last['point']['training.optimizer.lr']:.4g}"
    assert f"{taker}  goes on from {giver} after round 2: {taker} lr={rate}" in done.stdout
    table = next(line for line in done.stdout.splitlines() if f" {taker} " in line and "3/3" in line)
    assert rate[:5] in table, "the table has the values of the end"
    assert "changes" in next(run for run in runs(whole) if run.data.tags.get("fedtext.case") == taker).data.tags

    started = Forked(killed, *(word.replace(str(whole), str(killed)) for word in words))
    marks = killed / "runs" / "run"
    while started.poll() is None and not list(marks.glob("*/checkpoint/generation.json")):
        time.sleep(0.02)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    resumed = command(killed, "sweep", "--resume", "run", "--num-cpus", "2", timeout=600)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((marks / "population.json").read_text()) == generations
    assert states(marks) == states(run)
    shutil.rmtree(run / "report")
    report = command(whole, "report", "run")
    assert report.returncode == 0, report.stderr
    assert rate[:5] in (run / "report" / "tables" / "results.csv").read_text()
