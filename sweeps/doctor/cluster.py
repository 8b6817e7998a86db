"""The Ray cluster: whether it answers, its token, and what its nodes have. Ray runs in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from actors.address import last_started
from fedtext.runtime.paths import expanded
from sweeps.doctor.finding import About, Finding, size
from sweeps.doctor.software import ROOT, version_of

PATIENCE_S = 150.0  # for the whole survey
LITTLE = 1e9  # bytes: less free space on a node is worth a warning
_about = About("cluster")


@dataclass(frozen=True)
class Survey:
    """A survey that has been started (actors/survey.py). It goes on while other checks are made."""

    address: str
    process: subprocess.Popen[str]
    errors: IO[str]

    def result(self) -> dict[str, Any]:
        """Wait for it. Its ``error`` is why there is no more."""
        try:
            output, _ = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.close()
            return {"error": f"it did not answer in {PATIENCE_S:g} s: see ray status on its head"}
        lines = output.strip().splitlines()
        if lines and lines[-1].startswith("{"):
            return dict(json.loads(lines[-1]))
        self.errors.seek(0)
        said = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        return {"error": f"Ray's driver ended without an answer ({said[-1] if said else self.process.returncode})"}

    def close(self) -> None:
        """End its process, if it goes on."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        self.errors.close()


def begin(address: str) -> Survey:
    """Start the survey of a cluster."""
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is read after the process has ended
    argv = [sys.executable, "-m", "actors.survey", address]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    return Survey(address, process, errors)


def without() -> Finding:
    """Say what a sweep does where no cluster is named."""
    if version_of("ray") is None:
        remedy = 'sweeps need it: pip install -c constraints.txt -e ".[platform]"; python -m fedtext runs without it'
        return _about.warning("Ray is not installed", remedy)
    running = last_started()
    here = f"; --address auto joins the one at {running}" if running else ""
    return _about.ok(f"none is named: Ray starts on this machine{here}")


def token(environment: Mapping[str, str]) -> Finding:
    """Look for Ray's token.

    Args:
        environment: The environment variables.
    """
    mode = environment.get("RAY_AUTH_MODE", "").lower()
    file = expanded(environment.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token", "$RAY_AUTH_TOKEN_PATH")
    if mode not in ("", "token"):
        return _about.warning(
            f"RAY_AUTH_MODE={mode}: anyone who reaches a port of the cluster can run code on it",
            "start Ray with RAY_AUTH_MODE=token (cluster/README.md)",
        )
    if environment.get("RAY_AUTH_TOKEN"):
        return _about.ok("token: from $RAY_AUTH_TOKEN")
    if not file.is_file():
        if mode:
            remedy = "copy the head's ~/.ray/auth_token there, or make one with ray get-auth-token --generate"
            return _about.problem(f"RAY_AUTH_MODE=token, and there is no token in {file}", remedy)
        remedy = "ray get-auth-token --generate, and RAY_AUTH_MODE=token on all nodes"
        return _about.warning("no token: anyone who reaches a port of the cluster can run code on it", remedy)
    if file.stat().st_mode & 0o077:
        return _about.warning(f"token: others can read {file}", f"chmod 600 {file}")
    return _about.ok(f"token: from {file}")


def surveyed(address: str, found: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what a survey has found.

    Args:
        address: The cluster's address.
        found: What ``Survey.result`` returned.
    """
    if "error" in found:
        yield _about.problem(str(found["error"]))
        return
    nodes = found["nodes"]
    answered = [node for node in nodes if "error" not in node]
    yield _about.ok(f"{address} answers; nodes: {', '.join(node['address'] for node in nodes)}")
    for node in nodes:
        if "error" in node:
            yield _about.problem(
                f"node {node['address']} cannot run a task: {node['error']}", "install there what is installed here"
            )
    if answered:
        yield versions(found["driver"], answered)
    yield free(found["total"], found["free"])
    yield from lacking(answered)


def versions(driver: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> Finding:
    """Compare the versions of Python and packages on the nodes with those here.

    Args:
        driver: What was found here.
        nodes: What was found on each node.
    """
    here, others = driver["versions"], []
    for node in nodes:
        there = node["versions"]
        others += [
            f"{name} {there.get(name, 'is missing')} on {node['address']}, {here.get(name, 'none')} here"
            for name in sorted(here | there)
            if here.get(name) != there.get(name) and name != "fedtext"
        ]
        if there.get("fedtext") not in (None, here.get("fedtext")):  # where it is not installed, jobs bring it along
            others.append(f"fedtext {there['fedtext']} on {node['address']}, {here.get('fedtext')} here")
    if others:
        remedy = "install the same everywhere with -c constraints.txt; results may differ between these"
        return _about.warning(f"versions differ: {'; '.join(others)}", remedy)
    shown = ", ".join(f"{name} {here[name]}" for name in ("python", "ray", "fedtext", "torch") if name in here)
    return _about.ok(f"versions on all nodes as here: {shown}")


def free(total: Mapping[str, float], now: Mapping[str, float]) -> Finding:
    """Say how much of a cluster is free.

    Args:
        total: Its resources by name.
        now: Those that are free.
    """
    store = "object_store_memory"
    parts = [f"{now.get(name, 0):g} of {total[name]:g} {name}s" for name in ("CPU", "GPU") if total.get(name)]
    parts.append(f"{size(now.get(store, 0))} of {size(total.get(store, 0))} of the object store")
    if total.get("CPU") and now.get("CPU", 0) < 1:
        return _about.warning(f"free: {', '.join(parts)}", "trials wait until others give CPUs back; see ray status")
    return _about.ok(f"free: {', '.join(parts)}")


def lacking(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a warning for each thing that nodes lack.

    Args:
        nodes: What was found on each node.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        there = []
        if node["compile_problem"]:
            there.append(
                (f"cannot use engine native ({node['compile_problem']})", "trials use cells or reference everywhere")
            )
        if node["resources"].get("GPU") and node["no_cuda"]:
            there.append((f"has GPUs that cannot be used ({node['no_cuda']})", "install torch for CUDA there"))
        if node["disk_free"] < LITTLE:
            there.append(("has less than 1 GB free on the disk of Ray's folder", "free space there"))
        if node["shared_free"] is not None and node["shared_free"] < LITTLE / 10:
            there.append(("has less than 100 MB free in /dev/shm", "enlarge it, or objects go to disk"))
        for problem in there:
            found.setdefault(problem, []).append(node["address"])
    for (what, remedy), addresses in found.items():
        more = f" (and {len(addresses) - 1} more)" if len(addresses) > 1 else ""
        yield _about.warning(f"node {addresses[0]}{more} {what}", remedy)
