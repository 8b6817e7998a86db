"""A node lost with no CPU to spare, and one that joins: the trial goes on with what there is, to the same bits."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cluster.local import LocalCluster, available
from tests.commands import EXPERIMENT, ROOT, reached, states, undisturbed, write

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(available() is not None, reason=f"no namespaces here: {available()}"),
]
TRAINING = EXPERIMENT["training"] | {"rounds": 400}


def test_a_trial_goes_on_where_it_has_a_place_and_takes_in_a_node_that_joins(tmp_path: Path) -> None:
    copy, home = tmp_path / "copy" / "fedtext", tmp_path / "home"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "mlflow.db*", "mlartifacts", "__pycache__"))
    file = write(copy, space={}, baselines=[], training=TRAINING)
    environment = {"FEDTEXT_HOME": str(home)}
    checkpoint = home / "runs" / "lost" / "00-kteps" / "checkpoint"
    with LocalCluster(nodes=2, cpus=1, cwd=copy, node_env=environment) as cluster:
        argv = ["python", "-m", "platform.run", str(file), "--name", "lost"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        driver = cluster.popen(argv, cwd=copy, **pipes)
        reached(checkpoint, 3, driver)
        cluster.kill_node(1)
        before = last(checkpoint)
        reached(checkpoint, before + 3, driver)
        join = ["ray", "start", f"--address={cluster.address}", "--num-cpus=1", "--block"]
        joined = cluster.popen(join, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        output, _ = driver.communicate(timeout=900)
        joined.terminate()
        joined.wait(60)
    assert driver.returncode == 0, output
    assert "went back to its last checkpoint, since it lost a client actor" in output
    assert "1 of 2 client actors have no place until a node joins" in output
    assert "all of its client actors have a place again" in output
    assert states(home / "runs" / "lost")["00-kteps"] == undisturbed(EXPERIMENT | {"training": TRAINING}, home)


def last(checkpoint: Path) -> int:
    return max(int(path.name.removeprefix("round-")) for path in checkpoint.glob("round-*"))
