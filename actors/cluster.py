"""Connect to Ray, or start it, and ship this code to every worker."""

import contextlib
import ipaddress
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
from ray._private.services import find_gcs_addresses
from ray.exceptions import AuthenticationError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.address import AUTO, check, named
from actors.job import job_ships_code
from fedtext.errors import UserError, option, spelled
from fedtext.runtime import compiled
from fedtext.runtime.environment import ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("fedtext", "actors")  # packages for workers; never platform/, which is also a module of Python's library
# For a Ray started here, and in the cluster files. Objects without references are freed at once, not once a second: the
# next parameters reuse memory that is mapped already, which makes a round trip to an actor twice as fast.
FREEING = {"RAY_free_objects_period_milliseconds": "0"}
# For a Ray started here. It starts a worker for each CPU before the first trial. The workers import the library while
# the driver is still busy; torch alone where the library is not installed. Without the second setting Ray would end
# them a second after Tune has reserved their CPUs. A version of Ray that does not know these names ignores them.
AHEAD = {
    "RAY_preload_python_modules": "fedtext.client.ahead,torch",
    "RAY_idle_worker_killing_time_threshold_ms": "60000",
}

_joined = False  # whether Ray was started by others, so that a node may have another environment than this process
# Attempts of Ray to reach a cluster at whose address something listens, of half a minute each. Ray makes 20.
ATTEMPTS = {"RAY_gcs_server_port_wait_time_s": "2"}
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


def connect(
    address: str | None, num_cpus: float | None = None, num_gpus: float | None = None, processes: int = 0
) -> None:
    """Connect this driver to a Ray cluster, or start Ray on this machine.

    The library is shipped to a cluster unless a Ray job has done so. A process that is already connected keeps its
    connection: a notebook's second sweep uses the Ray of its first.

    Args:
        address: the cluster's address; by default $RAY_ADDRESS. Without either, Ray is started on this machine.
        num_cpus, num_gpus: logical CPUs and GPUs of a Ray started here; by default the machine's. They
            have no effect on a cluster (coming.py waits for its nodes).
        processes: processes of a trial. The workers of a Ray started here import torch in advance if there are no
            more of them than this.

    Raises:
        UserError: the cluster does not answer, or Ray does not start.
    """
    if ray.is_initialized():
        return
    address = named(address)
    if not address:
        _start(num_cpus, num_gpus, processes)
        return
    if address.startswith("ray://"):
        raise UserError(
            f"{address} is a Ray client address, and the server of a trial lives beside this command: run it on a node "
            "of the cluster, or submit it there with ray job submit"
        )
    _protect_token()
    address = _only_one() if address == AUTO else address
    check(address)
    environment: dict[str, Any] = {"env_vars": ENVIRONMENT}
    if not job_ships_code():
        environment["py_modules"] = [str(ROOT / folder) for folder in SHIPPED]
        environment["excludes"] = ["__pycache__"]
    global _joined
    with _said_by_ray() as said, _set(ATTEMPTS):
        try:
            ray.init(address, runtime_env=environment, **QUIET)
        except (ConnectionError, ValueError, RuntimeError, AuthenticationError) as error:
            raise UserError(f"the Ray cluster at {address} {_refusal(str(error), said())}") from error
    _joined = True


def _only_one() -> str:
    """Return the address of the cluster that runs here, where Ray's file does not name it (``ray start --temp-dir``).

    A Ray that a command has started for itself does not count: it listens on the loopback address, where no other
    command can join it.

    Raises:
        UserError: None runs here, or more than one.
    """
    running = sorted(address for address in find_gcs_addresses() if not _on_loopback(address))
    if len(running) == 1:
        return running[0]
    if running:
        raise UserError(f"several Ray clusters run here, at {', '.join(running)}: choose one with {option('address')}")
    raise UserError(
        "no Ray cluster that a command can join runs on this machine: start it (ray start --head), or name the "
        f"cluster's address with {option('address', 'HOST:PORT')}"
    )


def _on_loopback(address: str) -> bool:
    """Return whether an address ``HOST:PORT`` is one of this machine alone."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


@contextlib.contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the block, but for those that are set already."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ |= added
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _said_by_ray() -> Iterator[Callable[[], str]]:
    """Keep what Ray's C++ part writes to the standard error of this process, and write it there after all unless the
    block raises a UserError. Yields a function that returns it."""
    sys.stderr.flush()
    try:
        before = os.dup(2)
    except OSError:  # there is none
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as kept:

        def said() -> str:
            kept.seek(0)
            return kept.read().decode(errors="replace")

        os.dup2(kept.fileno(), 2)
        refused = False
        try:
            yield said
        except UserError:
            refused = True
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)
            if not refused:
                os.write(2, said().encode())


def _refusal(error: str, said: str) -> str:
    """Return why a cluster cannot be joined, and what to do.

    Args:
        error: The message of Ray's exception.
        said: What Ray wrote meanwhile.
    """
    versions = re.findall(r"^\s*(Ray|Python): (\S+)$", error, re.MULTILINE)
    if len(versions) == 4:
        there, here = (
            " and ".join(f"{name} {version}" for name, version in pair) for pair in (versions[:2], versions[2:])
        )
        return f"has {there}, and this command {here}: use the same on both sides (constraints.txt)"
    if "InvalidAuthToken" in said:
        return (
            "refuses the token of this machine: RAY_AUTH_MODE=token needs the head's token, in ~/.ray/auth_token, "
            "$RAY_AUTH_TOKEN_PATH or $RAY_AUTH_TOKEN"
        )
    why = error.splitlines()[0].partition(". ")[0]
    return f"cannot be used ({why}): check the address, that it runs, and RAY_AUTH_MODE and its token"


def _start(num_cpus: float | None, num_gpus: float | None, processes: int) -> None:
    """Start Ray on this machine. Arguments and errors are those of ``connect``."""
    global _joined
    _joined = False
    ahead = AHEAD if (num_cpus or os.cpu_count() or 1) <= processes else {}
    os.environ.update({name: os.environ.get(name, value) for name, value in (ENVIRONMENT | FREEING | ahead).items()})
    # "local": otherwise Ray would join a cluster that happens to run on this machine, without our code there.
    try:
        ray.init("local", num_cpus=num_cpus, num_gpus=num_gpus, include_dashboard=False, **QUIET)
    except Exception as error:  # Ray raises this very class where one of its processes does not start
        raise UserError(
            f"Ray did not start on this machine ({str(error).partition('. ')[0] or type(error).__name__}): "
            "see whether /tmp or $RAY_TMPDIR has space, and whether the machine is overloaded"
        ) from error
    _protect_token()


def _protect_token() -> None:
    """Make the password of the user's clusters readable by this user alone, as Ray does."""
    with contextlib.suppress(OSError):  # there is none, or it is another user's
        (Path.home() / ".ray" / "auth_token").chmod(0o600)


def joined() -> bool:
    """Whether this process has joined a Ray that others have started."""
    return _joined


def nodes() -> list[dict[str, float]]:
    """Return the resources of every node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def compile_problem() -> str:
    """Return why a node of the cluster cannot compile the engine ``native``; empty if all can. They keep the result.

    Raises:
        UserError: A node cannot run our code.
    """
    alive = [node for node in ray.nodes() if node["Alive"]] if ray.is_initialized() else []
    if len(alive) <= 1 and not _joined:  # this one
        return compiled.compile_problem()
    check = ray.remote(num_cpus=0, max_retries=0)(_compile_problem_there)
    places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in alive]
    calls = [check.options(scheduling_strategy=place).remote() for place in places]
    for node, call in zip(alive, calls, strict=True):
        try:
            ray.get(call)
        except RayError as error:
            raise UserError(
                f"node {node['NodeManagerAddress']} cannot run a task ({cause(error)}): install there what is "
                f"installed here ({spelled('doctor')} --address compares them)"
            ) from error
    problems = ray.get(calls)
    found = (
        f"node {node['NodeManagerAddress']}: {problem}"
        for node, problem in zip(alive, problems, strict=True)
        if problem
    )
    return next(found, "")


def cause(error: RayError) -> str:
    """Return the last line of the traceback in an error of a task."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _compile_problem_there() -> str:
    return compiled.compile_problem()  # a cached function cannot be a task
