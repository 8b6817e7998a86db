"""The Ray that a command starts for itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
