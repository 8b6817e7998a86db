"""A Ray cluster of ``ray start`` on this machine, with a token of its own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.tracking import free_port


@dataclass(frozen=True)
class Head:
    """A head. Its token is in ``token``, its sessions are in ``sessions``, and its workers import what lies in
    ``packages`` before what is installed."""

    address: str
    token: Path
    sessions: Path
    packages: Path


@contextmanager
def ray_head(monkeypatch: pytest.MonkeyPatch, cpus: int = 1, dashboard: bool = False) -> Iterator[Head]:
    """Start a head. Meanwhile this process and those that it starts have its token."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: sockets lie in it
    port = free_port()
    made = Head(f"127.0.0.1:{port}", folder / "token", folder / "ray", folder / "packages")
    made.token.write_text("a" * 32)
    made.token.chmod(0o600)
    made.packages.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(made.token))
    argv = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}"]
    argv += [f"--num-cpus={cpus}", "--object-store-memory=200000000", f"--ray-client-server-port={free_port()}"]
    argv += ["--min-worker-port=0", "--max-worker-port=0"]
    argv += [f"--dashboard-port={free_port()}" if dashboard else "--include-dashboard=false"]
    with (folder / "log").open("w") as log:
        environment = os.environ | {"PYTHONPATH": str(made.packages)}
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while "Ray runtime started" not in (folder / "log").read_text():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield made
    finally:
        parts = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        for part in psutil.wait_procs(parts, timeout=10)[1]:
            part.kill()
        shutil.rmtree(folder, ignore_errors=True)
