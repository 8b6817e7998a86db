"""The Ray that a command starts for itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

# Starts Ray as a command does, and prints its processes' words.
LOCAL = """
import contextlib, psutil
from actors import cluster

cluster.connect(None, num_cpus=1)
for process in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):
        print(" ".join(process.cmdline()))
"""


@pytest.mark.ray
def test_a_ray_started_by_a_command_has_no_processes_that_nobody_uses(tmp_path: Path) -> None:
    """And its node's agent takes any port: it would wait for the usual one where another Ray has it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LOCAL], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    started = done.stdout.splitlines()
    assert any("/raylet/raylet " in line for line in started)
    assert any("--listen-port=0" in line for line in started)
    assert not [line for line in started if "monitor.py" in line or "dashboard.py" in line]
