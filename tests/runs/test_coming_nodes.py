"""Nodes that are not there yet when a command begins."""

import json
import subprocess
from pathlib import Path
from typing import Any

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


def autoscaling(folder: Path) -> Path:
    """Return the configuration of a Ray autoscaler which starts further nodes, of one CPU each, beside the head."""
    lists = ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands")
    more = ("head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files", "rsync_exclude")
    content: dict[str, Any] = {name: [] for name in (*lists, *more, "rsync_filter")} | {
        "cluster_name": "growing",
        "max_workers": 1,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "provider": {"type": "fake_multinode", "disable_node_updaters": True},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1}, "max_workers": 0, "node_config": {}},
            "more": {"resources": {"CPU": 1, "object_store_memory": 200_000_000}, "max_workers": 1, "node_config": {}},
        },
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        "no_restart": False,
    }
    file = folder / "autoscaling.yaml"
    file.write_text(json.dumps(content))
    return file


def test_an_autoscaler_is_asked_for_the_nodes_that_are_missing(tmp_path: Path) -> None:
    file = write(tmp_path, space={}, baselines=[])
    settings = {"FEDTEXT_HOME": str(tmp_path), "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    options = [f"--autoscaling-config={autoscaling(tmp_path)}"]
    with LocalCluster(nodes=1, cpus=1, cwd=ROOT, node_env=settings, head_options=options) as cluster:
        argv = ["python", "-m", "platform.run", str(file), "--name", "grown", "--num-cpus", "2"]
        done = cluster.run(argv, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one trial at a time, with 2 client actors of 1 CPU: 2 of 2 CPUs on 2 nodes" in done.stdout + done.stderr
    assert states(tmp_path / "runs" / "grown")["00-kteps"] == undisturbed(EXPERIMENT, tmp_path)
