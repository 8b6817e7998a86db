"""Where the processes of a command listen."""

import os
import shutil
import signal
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from tests.commands import ROOT, environment, reached, write

ASKED = "import os; from platform._words import keep_ray_here as keep; keep(); print(os.environ.get({0!r}))"


@pytest.mark.parametrize(
    ("words", "address", "kept"),
    [
        (["demo.yaml"], "", "0"),
        (["demo.yaml", "--data", "d"], "", "0"),
        (["demo.yaml", "--again"], "", "0"),
        (["demo.yaml"], "10.0.0.1:6379", "None"),
        *((["demo.yaml", *given], "", "None") for given in (["--address", "h:1"], ["--address=h:1"], ["--a=h:1"])),
    ],
)
def test_a_command_that_joins_a_cluster_leaves_its_address_alone(words: list[str], address: str, kept: str) -> None:
    """An option may be abbreviated."""
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    env = {key: value for key, value in os.environ.items() if key != name} | {"RAY_ADDRESS": address}
    argv = [sys.executable, "-c", ASKED.format(name), *words]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == kept


def listening(driver: int) -> set[tuple[str, str]]:
    """The addresses at which a process and those that it has started listen, with the name of the process."""
    found = set()
    for process in [psutil.Process(driver), *psutil.Process(driver).children(recursive=True)]:
        try:
            sockets = process.net_connections("inet")
        except psutil.Error:  # it ended meanwhile
            continue
        found |= {(s.laddr.ip, process.name()) for s in sockets if s.status == psutil.CONN_LISTEN}
    return found


@pytest.mark.ray
@pytest.mark.slow
def test_a_ray_that_is_started_here_listens_on_the_loopback_address(tmp_path: Path, ready: Path) -> None:
    shutil.copy(ready, tmp_path / "mlflow.db")
    file, folder = write(tmp_path, space={}, baselines=[]), tmp_path / "runs" / "here"
    argv = [sys.executable, "-m", "platform.run", str(file), "--name", "here", "training.rounds=500"]
    env = {
        name: value for name, value in environment(tmp_path).items() if not name.startswith(("RAY_ADDR", "RAY_AUTH"))
    }
    env["HOME"] = str(tmp_path)
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        try:
            reached(folder / "00-kteps" / "checkpoint", 3, driver)
            found = listening(driver.pid)
            token = tmp_path / ".ray" / "auth_token"
            assert token.stat().st_mode & 0o777 == 0o600
            (head,) = (one for one in psutil.Process(driver.pid).children(recursive=True) if one.name() == "gcs_server")
            assert head.environ()["RAY_AUTH_MODE"] == "token"
        finally:
            os.kill(driver.pid, signal.SIGINT)
            driver.communicate(timeout=120)
    assert {"gcs_server", "raylet"} <= {name for _, name in found}
    outside = {(address, name) for address, name in found if not _loopback(address)}
    assert not outside


def _loopback(address: str) -> bool:
    ip = ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
