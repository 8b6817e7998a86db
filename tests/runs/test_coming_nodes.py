"""Nodes that are not there yet when a command begins."""

import subprocess
from pathlib import Path

import pytest

from cluster.local import LocalCluster, available
from tests.commands import EXPERIMENT, ROOT, states, undisturbed, write

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(available() is not None, reason=f"no namespaces here: {available()}"),
]


def test_a_command_waits_for_the_nodes_that_it_is_told_of(tmp_path: Path) -> None:
    file = write(tmp_path, space={}, baselines=[])
    with LocalCluster(nodes=1, cpus=1, cwd=ROOT, node_env={"FEDTEXT_HOME": str(tmp_path)}) as cluster:
        argv = ["python", "-m", "platform.run", str(file), "--name", "later", "--num-cpus", "2"]
        driver = cluster.popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert driver.stdout is not None
        before = []
        for line in driver.stdout:
            before.append(line)
            if line.startswith("waiting for nodes: 1 node has 1 of 2 CPUs; "):
                break
        join = ["ray", "start", f"--address={cluster.address}", "--num-cpus=1", "--block"]
        joined = cluster.popen(join, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        output, _ = driver.communicate(timeout=300)
        joined.terminate()
        joined.wait(60)
    assert driver.returncode == 0, "".join(before) + output
    assert "one trial at a time, with 2 client actors of 1 CPU: 2 of 2 CPUs on 2 nodes" in output
    assert states(tmp_path / "runs" / "later")["00-kteps"] == undisturbed(EXPERIMENT, tmp_path)
