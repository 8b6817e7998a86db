"""A node lost with no CPU to spare, and one that joins: the trial goes on with what there is, to the same bits."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.local import LocalCluster, available
from fedtext.state.checkpoint import history
from tests.commands import EXPERIMENT, ROOT, reached, states, undisturbed, write
from tests.loops import nonempty

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(available() is not None, reason=f"no namespaces here: {available()}"),
]
TRAINING = EXPERIMENT["training"] | {"rounds": 200}


@dataclass(frozen=True)
class Run:
    """A run on two nodes of one CPU each. ``output`` waits for its end."""

    cluster: LocalCluster
    driver: subprocess.Popen[str]
    home: Path

    @property
    def checkpoint(self) -> Path:
        return self.of("00-kteps")

    def of(self, case: str) -> Path:
        return self.home / "runs" / "lost" / case / "checkpoint"

    def more(self, rounds: int) -> None:
        """Wait until it has completed some more rounds."""
        reached(self.checkpoint, last(self.checkpoint) + rounds, self.driver)

    def output(self) -> str:
        output, _ = self.driver.communicate(timeout=900)
        assert self.driver.returncode == 0, output
        return output

    def check(self) -> None:
        """It ended with the bits of an undisturbed run."""
        expected = undisturbed(EXPERIMENT | {"training": TRAINING}, self.home)
        assert states(self.home / "runs" / "lost")["00-kteps"] == expected


@contextmanager
def started(folder: Path, command: str, nodes: int = 2, **changes: Any) -> Iterator[Run]:
    """A run or a sweep of an experiment, with these sections replaced."""
    copy, home = folder / "copy" / "fedtext", folder / "home"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "mlflow.db*", "mlartifacts", "__pycache__"))
    file = write(copy, **{"baselines": [], "training": TRAINING} | changes)
    with LocalCluster(nodes=nodes, cpus=1, cwd=copy, node_env={"FEDTEXT_HOME": str(home)}) as cluster:
        argv = ["python", "-m", f"platform.{command}", str(file), "--name", "lost"]
        yield Run(
            cluster, cluster.popen(argv, cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True), home
        )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with started(tmp_path, "run", space={}) as made:
        reached(made.checkpoint, 3, made.driver)
        yield made


def test_a_trial_goes_on_where_it_has_a_place_and_takes_in_a_node_that_joins(run: Run) -> None:
    run.cluster.kill_node(1)
    run.more(3)
    join = ["ray", "start", f"--address={run.cluster.address}", "--num-cpus=1", "--block"]
    joined = run.cluster.popen(join, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    output = run.output()
    joined.terminate()
    joined.wait(60)
    said = re.search(r"lost a client actor \(on node ([^ :]+): [^)]+\): it goes back to round \d+\n", output)
    assert said, output
    assert said[1] == run.cluster.ip(1)
    assert "went back to its last checkpoint, since it lost a client actor" in output
    assert "1 of 2 client actors have no place until a node joins" in output
    assert "all of its client actors have a place again" in output
    run.check()


def test_a_node_that_is_cut_off_for_ten_seconds_is_waited_for(run: Run) -> None:
    run.cluster.cut(1)
    time.sleep(10)
    run.cluster.mend(1)
    output = run.output()
    assert "have no place" not in output
    run.check()


def test_a_node_that_is_cut_off_for_long_is_lost(run: Run) -> None:
    run.cluster.cut(1)
    run.more(3)
    run.cluster.mend(1)
    assert "1 of 2 client actors have no place until a node joins" in run.output()
    run.check()


def test_a_trial_that_needs_more_than_is_left_is_planned_again(run: Run) -> None:
    """Its server is lost with the node, so that it asks for its whole share again."""
    run.cluster.kill_node(1)
    (server,) = (process for process in on(run.cluster, 0) if "ImplicitFunc" in process.name())
    server.kill()
    output = run.output()
    assert "1 trial planned again: one trial at a time, with 1 client actor of 1 CPU: 1 of 1 CPU on 1 node" in output
    run.check()


def test_a_sweep_takes_in_a_node_that_joins(tmp_path: Path) -> None:
    grid = {"method.lambda1": {"grid": [0.01, 0.1, 0.2, 0.3]}}
    with started(tmp_path, "sweep", space=grid, nodes=1, resources={"clients_per_actor": 4}) as run:
        reached(run.checkpoint, 3, run.driver)
        join = ["ray", "start", f"--address={run.cluster.address}", "--num-cpus=1", "--block"]
        joined = run.cluster.popen(join, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        output = run.output()
        joined.terminate()
        joined.wait(60)
        spans = {case: span(run.of(case)) for case in ("00-kteps", "01-kteps", "02-kteps", "03-kteps")}
        found = states(run.home / "runs" / "lost")
    assert "one trial at a time, with 1 client actor of 1 CPU: 1 of 1 CPU on 1 node" in output
    assert "the cluster has grown: up to 2 trials run side by side from now on" in output
    firsts = sorted(spans.values())
    assert [one for one, other in pairwise(firsts) if other[0] < one[1]], "two trials ran at the same time"
    method = EXPERIMENT["method"] | {"lambda1": 0.3}
    assert found["03-kteps"] == undisturbed(EXPERIMENT | {"training": TRAINING, "method": method}, tmp_path / "alone")


def span(checkpoint: Path) -> tuple[float, float]:
    """When a trial completed its first and its last round."""
    records = history(checkpoint)
    return records[0].time, records[-1].time


def test_trials_whose_nodes_were_lost_go_on_when_others_have_ended(tmp_path: Path) -> None:
    grid = {"method.lambda1": {"grid": [0.01, 0.1, 0.3]}}
    training = TRAINING | {"rounds": 1500}  # so many that others still run when the loss is noticed
    with started(tmp_path, "sweep", space=grid, training=training, resources={"clients_per_actor": 4}) as run:
        for case in ("00-kteps", "01-kteps"):
            reached(run.of(case), 3, run.driver)
        run.cluster.kill_node(1)
        output = run.output()
        found = states(run.home / "runs" / "lost")
    assert "were lost, and no other node has room for one: it goes on when there is a place" in output
    assert "planned again: one trial at a time, with 1 client actor of 1 CPU" in output
    for case, value in nonempty(zip(sorted(found), grid["method.lambda1"]["grid"], strict=True)):
        method = EXPERIMENT["method"] | {"lambda1": value}
        assert found[case] == undisturbed(EXPERIMENT | {"training": training, "method": method}, tmp_path / case)


def on(cluster: LocalCluster, node: int) -> Iterator[psutil.Process]:
    return map(psutil.Process, cluster.pids(node))


def last(checkpoint: Path) -> int:
    return max(int(path.name.removeprefix("round-")) for path in checkpoint.glob("round-*"))
