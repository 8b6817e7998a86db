"""A sweep on a cluster that others are using."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from actors import waiting
from actors.placement import Plan
from tests.commands import ROOT, environment, write

# A Ray of two CPUs, both of which an actor holds until a line comes.
BUSY = """
import json, sys
import ray

@ray.remote(num_cpus=2)
class Holder:
    pass

ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
holder = Holder.remote()
ray.get(holder.__ray_ready__.remote())
print(json.dumps(ray.get_runtime_context().gcs_address), flush=True)
sys.stdin.readline()
ray.kill(holder)
sys.stdin.readline()
"""

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}


@contextmanager
def busy() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of such a Ray, and its process."""
    argv = [sys.executable, "-c", BUSY]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd="/", env=os.environ | TOKEN, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline()), process
        finally:
            process.stdin.close()


@pytest.mark.parametrize(("asked_by", "waits"), [("03000000", True), ("04000000", False)])
def test_what_another_sweep_waits_for_is_not_what_this_one_lacks(
    asked_by: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sweeps of the same plan: the processes of the first one are still starting, and the second one waits."""
    plan = Plan(actors=2, cpus=1, gpus=0, trials=1)
    wanted = plan.bundles("10.0.0.1").bundles
    group = {"state": "PENDING", "bundles": dict(enumerate(wanted))}
    monkeypatch.setattr(waiting, "placement_group_table", lambda: {f"d2a47552a9b3fa1dc2d578e5e999{asked_by}": group})
    monkeypatch.setattr(waiting, "nodes", lambda: [{"CPU": 2.0}])
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    monkeypatch.setattr(ray, "available_resources", dict)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: "03000000"))
    assert bool(waiting.waiting_for(plan)) == waits


@pytest.mark.ray
@pytest.mark.slow
def test_a_trial_that_waits_for_others_says_what_for(tmp_path: Path) -> None:
    file = write(tmp_path, space={}, baselines=[])
    err = tmp_path / "err"
    with busy() as (address, cluster), err.open("w") as stderr:
        argv = [sys.executable, "-m", "platform.run", str(file), "training.rounds=1", "--address", address]
        env = environment(tmp_path) | TOKEN
        driver = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=stderr)
        sentence = (
            "waiting for 2 CPUs (2 client actors of 1 CPU): 0 of 2 CPUs free on 1 node; `ray job list` shows which "
            "commands run there\n"
        )
        deadline = time.monotonic() + 400
        while sentence not in err.read_text():
            assert time.monotonic() < deadline, err.read_text()
            assert driver.poll() is None, err.read_text()
            time.sleep(0.1)
        assert cluster.stdin is not None
        print(file=cluster.stdin, flush=True)
        assert driver.wait(timeout=400) == 0, err.read_text()
