"""Attaching to Ray, or starting it, and getting this code to every worker."""

import contextlib
import functools
import inspect
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import ray
from ray.exceptions import AuthenticationError

from fedtext.errors import UserError
from fedtext.runtime.environment import ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent
REACH_SECONDS = 10.0
SHIPPED = ("fedtext", "actors")  # what a worker imports; never platform/, whose name a worker already knows
# For a Ray started here, and in the cluster files. What no one holds any more is freed at once, and the next parameters
# find memory that is mapped already, which makes the way to an actor and back twice as fast. Ray would wait a second.
FREEING = {"RAY_free_objects_period_milliseconds": "0"}
# For a Ray started here. It starts a worker for each CPU ahead of any trial: they import what takes longest while the
# driver is still busy with other things, and wait for the first trial although Tune reserves the CPUs, upon which Ray
# would end them after a second. A Ray that does not know these names ignores them.
AHEAD = {"RAY_preload_python_modules": "torch", "RAY_idle_worker_killing_time_threshold_ms": "60000"}
# For a Ray started here. The usual port of a node's agent may be another Ray's, and trying goes on for 3 to 5 s while
# everything waits. Nothing scales one machine, and no one reads the workers' output here.
LEAN = {"dashboard_agent_listen_port": 0, "no_monitor": True, "include_log_monitor": False}


def job_ships_code() -> bool:
    """Whether this process is a Ray job whose working folder was shipped (``ray job submit --working-dir``)."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    return "working_dir" in (job.get("runtime_env") or {})


def connect(
    address: str | None, num_cpus: float | None = None, num_gpus: float | None = None, processes: int = 0
) -> None:
    """Connects this driver to the cluster at ``address`` or $RAY_ADDRESS, and ships the library to it unless a job has
    done so; without an address, starts Ray on this machine (with so many logical CPUs and GPUs, if given), its first
    workers prepared for a trial unless there would be more of them than ``processes``.

    A process that is connected already stays so: a notebook's second sweep uses the Ray of its first.

    Raises UserError if the cluster does not answer.
    """
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not address:
        ahead = AHEAD if (num_cpus or os.cpu_count() or 1) <= processes else {}
        os.environ.update(
            {name: os.environ.get(name, value) for name, value in (ENVIRONMENT | FREEING | ahead).items()}
        )
        with _lean():
            # "local": otherwise Ray would join a cluster that happens to run on this machine, without our code there.
            try:
                ray.init("local", num_cpus=num_cpus, num_gpus=num_gpus, include_dashboard=False, **quiet)
            except Exception as error:  # Ray raises this very class where one of its processes does not start
                raise UserError(
                    f"Ray did not start on this machine ({str(error).partition('. ')[0] or type(error).__name__}): "
                    "see whether /tmp or $RAY_TMPDIR has space, and whether the machine is overloaded"
                ) from error
        return
    if address.startswith("ray://"):
        raise UserError(
            f"{address} is a Ray client address, and the server of a trial lives beside this command: run it on a node "
            "of the cluster, or submit it there with ray job submit"
        )
    if num_cpus is not None or num_gpus is not None:
        raise UserError(f"--num-cpus and --num-gpus are for a Ray started here; the cluster at {address} has its own")
    _check_address(address)
    environment: dict[str, Any] = {"env_vars": ENVIRONMENT}
    if not job_ships_code():
        environment["py_modules"] = [str(ROOT / folder) for folder in SHIPPED]
        environment["excludes"] = ["__pycache__"]
    try:
        ray.init(address, runtime_env=environment, **quiet)
    except (ConnectionError, ValueError, RuntimeError, AuthenticationError) as error:
        raise UserError(
            f"the Ray cluster at {address} cannot be used ({str(error).splitlines()[0].partition('. ')[0]}): check the "
            "address, that it runs, and RAY_AUTH_MODE and its token"
        ) from error


def _check_address(address: str) -> None:
    """Raise UserError if nothing listens at ``host:port``. Ray would go on trying for minutes; other forms of an
    address are left to it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"no Ray cluster answers at {address} ({error}): start it (ray start --head), or correct --address or "
            "$RAY_ADDRESS"
        ) from error


@contextlib.contextmanager
def _lean() -> Iterator[None]:
    """A Ray that is started within the block has LEAN, and no server for the dashboard that it does not have, whose
    start it would wait for. ``ray.init`` has no words for these; a Ray that no longer knows them starts as it likes."""
    with contextlib.ExitStack() as patches:
        with contextlib.suppress(ImportError):
            from ray._private.parameter import RayParams

            known = {name: value for name, value in LEAN.items() if name in inspect.signature(RayParams).parameters}
            patches.enter_context(mock.patch("ray._private.parameter.RayParams", functools.partial(RayParams, **known)))
        with contextlib.suppress(ImportError, AttributeError):
            from ray._private.node import Node

            patches.enter_context(mock.patch.object(Node, "start_api_server", return_value=None))
        yield


def nodes() -> list[dict[str, float]]:
    """The resources of every node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]
