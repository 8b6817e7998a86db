"""The Ray that a command starts for itself, and the one that it joins."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from actors import cluster
from fedtext.errors import UserError
from tests import ROOT
from tests.loops import nonempty

# Starts Ray as a command does, and prints its processes' words.
LOCAL = """
import contextlib, psutil
from actors import cluster

cluster.connect(None, num_cpus=1)
for process in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):
        print(" ".join(process.cmdline()))
"""


@pytest.mark.slow
@pytest.mark.ray
def test_a_ray_started_by_a_command_serves_no_dashboard(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LOCAL], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    started = done.stdout.splitlines()
    assert any("/raylet/raylet " in line for line in started)
    servers = [line for line in started if "dashboard/dashboard.py" in line]
    assert all(nonempty("--disable-frontend" in line for line in servers)), servers


LOOPBACK, FIRST, SECOND = "127.0.0.1:34303", "10.0.0.1:6379", "10.0.0.1:6479"


@pytest.mark.parametrize(
    ("running", "problem"),
    [
        ([], "no Ray cluster that a command can join runs on this machine: start it"),
        ([LOOPBACK, "localhost:1", "[::1]:1"], "no Ray cluster that a command can join runs on this machine: start it"),
        ([SECOND, FIRST, LOOPBACK], f"several Ray clusters run here, at {FIRST}, {SECOND}: choose one with"),
    ],
)
def test_auto_joins_no_cluster_that_cannot_be_meant(
    running: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would take any that it finds, and try for 12 minutes to join one that a command has started for itself."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(cluster, "find_gcs_addresses", lambda: frozenset(running))
    with pytest.raises(UserError, match=re.escape(problem)):
        cluster.connect("auto")


def test_auto_joins_the_only_cluster_that_others_can_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ``ray start --temp-dir``, whose file is elsewhere, or of a command of another user."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        gone = f"{socket.gethostname()}:{listening.getsockname()[1]}"
    monkeypatch.setattr(cluster, "find_gcs_addresses", lambda: frozenset([LOOPBACK, gone]))
    with pytest.raises(UserError, match=re.escape(f"no Ray cluster answers at {gone}")):
        cluster.connect("auto")


@pytest.mark.slow
@pytest.mark.ray
def test_an_address_at_which_something_else_listens_is_one_sentence(tmp_path: Path) -> None:
    """Ray itself would try for 12 minutes without a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        join = f"""
from actors import cluster
cluster.ATTEMPTS["RAY_gcs_server_port_wait_time_s"] = "1"
cluster.connect({address!r})
"""
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        done = subprocess.run(
            [sys.executable, "-c", join],
            env=environment | {"PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert f"UserError: the Ray cluster at {address} cannot be used" in done.stderr
