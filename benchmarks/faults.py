"""Processes and nodes that die or hang in a run: the seconds that each costs, and whether the results are the same.

Usage: python -m benchmarks.faults [--rounds 40] [--nodes]

With --nodes also nodes that are lost, cut off and join, on two network namespaces (as root).
"""

import argparse
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from cluster.local import LocalCluster

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["demo.yaml", "method=kteps", "training.local_epochs=3", "resources.hang_timeout_s=10", "--name", "run"]
CLIENT, SERVER = "ray::ClientActor", "ray::ImplicitFunc"


def signalled(title: str, how: signal.Signals) -> Callable[[int], None]:
    """Return a fault: a signal to the first process below the driver whose title begins so."""

    def strike(driver: int) -> None:
        for process in psutil.Process(driver).children(recursive=True):
            if " ".join(process.cmdline()).startswith(title):
                process.send_signal(how)
                return
        raise LookupError(title)

    return strike


PROCESSES = {
    "a client actor is killed": signalled(CLIENT, signal.SIGKILL),
    "a client actor hangs (SIGSTOP)": signalled(CLIENT, signal.SIGSTOP),
    "a server is killed": signalled(SERVER, signal.SIGKILL),
    "a server hangs (SIGSTOP)": signalled(SERVER, signal.SIGSTOP),
}


def digest(home: Path) -> str:
    """Return a digest of the model that a run has saved."""
    files = sorted((home / "runs" / "run" / "00-kteps" / "model").glob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() if files else "none"


def at(home: Path, round_: int, driver: subprocess.Popen[str]) -> None:
    """Wait until a run has a checkpoint of this round or a later one."""
    folder = home / "runs" / "run" / "00-kteps" / "checkpoint"
    while not any(int(path.name.partition("-")[2]) >= round_ for path in folder.glob("round-*")):
        assert driver.poll() is None, "the run ended too early"
        time.sleep(0.05)


@contextmanager
def here(home: Path, rounds: int) -> Iterator[subprocess.Popen[str]]:
    """Run on this machine."""
    argv = [sys.executable, "-m", "platform.run", *WORDS, f"training.rounds={rounds}", "--num-cpus", "2"]
    environment = os.environ | {"FEDTEXT_HOME": str(home)}
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as driver:
        yield driver


def told(driver: subprocess.Popen[str]) -> str:
    """Return the seconds that a run says it lost."""
    output, _ = driver.communicate(timeout=1200)
    found = re.findall(r"was complete ([0-9.]+) s later", output)
    return (
        f"{sum(map(float, found)):.1f}" if found else f"exit status {driver.returncode}" if driver.returncode else "0"
    )


def row(name: str, seconds: str, same: bool) -> None:
    """Print a row of the table."""
    print(f"| {name} | {seconds} | {'the same bits' if same else 'OTHER RESULTS'} |", flush=True)


def nodes(rounds: int, expected: str) -> None:
    """Print the rows of faults of a node."""

    def kill(cluster: LocalCluster) -> None:
        cluster.kill_node(1)

    def cut(cluster: LocalCluster) -> None:
        cluster.cut(1)
        time.sleep(10)
        cluster.mend(1)

    for name, strike in {
        "a node is lost, with no CPU to spare": kill,
        "a node is cut off for 10 s": cut,
        "a node is cut off for good": lambda cluster: cluster.cut(1),
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            with LocalCluster(nodes=2, cpus=1, cwd=ROOT, node_env={"FEDTEXT_HOME": str(home)}) as cluster:
                argv = [sys.executable, "-m", "platform.run", *WORDS, f"training.rounds={rounds}"]
                driver = cluster.popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                at(home, 4, driver)
                strike(cluster)
                seconds = told(driver)
            row(name, seconds, digest(home) == expected)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="of each run (default 40)")
    parser.add_argument("--nodes", action="store_true", help="also faults of nodes, in network namespaces, as root")
    words = parser.parse_args()
    print("| fault | seconds lost | results |\n| --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder, here(Path(folder), words.rounds) as driver:
        told(driver)
        expected = digest(Path(folder))
    for name, strike in PROCESSES.items():
        with tempfile.TemporaryDirectory() as folder, here(Path(folder), words.rounds) as driver:
            at(Path(folder), 4, driver)
            strike(driver.pid)
            seconds = told(driver)
            row(name, seconds, digest(Path(folder)) == expected)
    if words.nodes:
        nodes(words.rounds, expected)


if __name__ == "__main__":
    main()
