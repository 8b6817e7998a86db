"""Runs one command and reads what its whole tree of processes uses: CPU time every 0.2 s, memory every second.

CPU time is user + system of every process ever seen in the tree, each with its last reading: a process that ends
loses at most what it used since then. (Waiting for children would miss what Ray's daemons start: they do not wait.)
The last reading is taken when the run has said that its rounds are done and before anything shuts down. Memory is
PSS, which counts a page that several processes share once; reading it walks the page tables of every process (35 ms for
a Ray cluster of ten), so more often would slow down what is measured.
"""

import json
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from .workloads import Task

PERIOD_S, MEMORY_PERIOD_S = 0.2, 1.0
END_S = 60.0  # for what a run does after its last round


@dataclass(frozen=True)
class Reading:
    """One run. Seconds; bytes. ``rounds_s`` are the rounds after the first, ``first_s`` runs from the start of the
    process to the end of its first round; ``cpu_rounds_s`` is CPU per round after the first, ``cpu_s`` all of it.
    ``reading_s`` is the CPU time that taking these readings itself has cost."""

    first_s: float
    rounds_s: list[float]
    cpu_s: float
    cpu_rounds_s: float
    peak_pss: int
    reading_s: float


class Tree:
    """The processes that descend from ``root``, including those that have lost their parent since."""

    def __init__(self, root: psutil.Process) -> None:
        self.root = root
        self.seen: dict[psutil.Process, float] = {root: 0.0}
        self.times: list[float] = []
        self.cpu: list[float] = []
        self.peak, self.memory_due = 0, 0.0

    def find(self) -> None:
        with suppress(psutil.NoSuchProcess):
            for process in self.root.children(recursive=True):
                self.seen.setdefault(process, 0.0)

    def read(self, last: bool = False) -> None:
        self.find()
        pss, memory = 0, last or time.monotonic() >= self.memory_due
        if memory:
            self.memory_due = time.monotonic() + MEMORY_PERIOD_S
        for process in self.seen:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.is_running():  # a process is its number and its start: a number used again is not it
                    used = process.cpu_times()
                    self.seen[process] = used.user + used.system
                    pss += process.memory_full_info().pss if memory else 0
        self.times.append(time.time())
        self.cpu.append(sum(self.seen.values()))
        self.peak = max(self.peak, pss)

    def kill(self) -> None:
        """Ends those that are left."""
        self.find()
        for process in self.seen:
            with suppress(psutil.NoSuchProcess):
                if process.is_running():
                    process.kill()


def measure(task: Task, command: list[str], environment: dict[str, str], folder: Path, timeout: float) -> Reading:
    """Runs ``command`` in ``folder``. Raises RuntimeError with one clause if it fails."""
    own, start, log = time.process_time(), time.time(), task.folder / "log.txt"
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}  # each starts its own Ray
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=inherited | environment, stdout=output, stderr=subprocess.STDOUT
        )
    tree = Tree(psutil.Process(process.pid))
    released, deadline = False, start + timeout
    try:
        while process.poll() is None:
            finished = (task.folder / "finished").exists()
            if not released:
                tree.read(last=finished)
            if finished and not released:
                (task.folder / "released").touch()
                released, deadline = True, time.time() + END_S
            if time.time() > deadline:
                raise RuntimeError(f"it did not end within {deadline - start:.0f} s")
            time.sleep(PERIOD_S)
    finally:
        tree.kill()
        process.wait()
    if process.returncode or not released:
        raise RuntimeError(reason(log, process.returncode))
    ends = [json.loads(line)["time"] for line in (task.folder / "rounds.jsonl").read_text().splitlines()]
    if len(ends) != task.workload.rounds:
        raise RuntimeError(f"it noted {len(ends)} of {task.workload.rounds} rounds")
    first, last = np.interp([ends[0], ends[-1]], tree.times, tree.cpu)
    own = time.process_time() - own
    return Reading(
        ends[0] - start,
        np.diff(ends).tolist(),
        tree.cpu[-1],
        float(last - first) / (len(ends) - 1),
        tree.peak,
        own,
    )


def reason(log: Path, status: int) -> str:
    """The last line of ``log`` that names an error, or its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or "Exception" in line] or lines
    return named[-1][:160] if named else f"exit status {status}"
