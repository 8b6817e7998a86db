"""``python -m actors.survey ADDRESS``: what the nodes of a Ray cluster have, as JSON on the last line of the output.

A process of its own: Ray ends a process whose cluster goes away, and may wait for one without end.
"""

import json
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors import cluster
from fedtext.errors import UserError, command_line
from fedtext.runtime.compiled import compile_problem
from fedtext.runtime.devices import no_cuda

# Packages on which results or messages between nodes depend.
COMPARED = ("ray", "fedtext", "torch", "numpy", "pyarrow", "pydantic", "safetensors", "transformers", "randomgen")
ANSWER_S = 90.0  # seconds for the nodes, which may have to install the shipped code first


def survey(address: str) -> dict[str, Any]:
    """Connect to a cluster, and ask each of its nodes.

    Args:
        address: The cluster's address.

    Returns:
        ``driver``: what ``here`` returns here; ``total`` and ``free``: resources by name; ``nodes``: for each node that
        is alive its ``address``, its ``resources``, and what ``here`` returned there or the ``error``.

    Raises:
        UserError: The cluster cannot be used.
    """
    cluster.connect(address)
    alive = [node for node in ray.nodes() if node["Alive"]]
    ask = ray.remote(num_cpus=0, max_retries=0)(here)
    calls = [
        ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(n["NodeID"], soft=False)).remote() for n in alive
    ]
    done, _ = ray.wait(calls, num_returns=len(calls), timeout=ANSWER_S)
    answers = [_answer(call) if call in done else {"error": f"no answer in {ANSWER_S:g} s"} for call in calls]
    nodes = [
        {"address": node["NodeManagerAddress"], "resources": node["Resources"]} | answer
        for node, answer in zip(alive, answers, strict=True)
    ]
    return {
        "driver": here(),
        "total": ray.cluster_resources(),
        "free": ray.available_resources(),
        "nodes": sorted(nodes, key=lambda node: node["address"]),
    }


def here() -> dict[str, Any]:
    """Return what this process's node has: versions by name, free space, and what it lacks."""
    return {
        "versions": {"python": ".".join(map(str, sys.version_info[:3]))} | _versions(),
        "shared_free": shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else None,
        "disk_free": shutil.disk_usage(os.environ.get("RAY_TMPDIR", "/tmp")).free,
        "compile_problem": compile_problem(),
        "no_cuda": no_cuda(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in COMPARED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _answer(call: ray.ObjectRef) -> dict[str, Any]:
    try:
        return ray.get(call, timeout=0.0)
    except (RayError, GetTimeoutError) as error:
        return {"error": cluster.cause(error)}


if __name__ == "__main__":
    with command_line():
        try:
            print("\n" + json.dumps(survey(sys.argv[1])), flush=True)
        except UserError as refused:
            print("\n" + json.dumps({"error": str(refused)}), flush=True)
    os._exit(0)  # taking Ray down takes seconds
