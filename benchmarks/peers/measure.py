"""Run a command and measure its whole tree of processes: CPU time every 0.2 s, memory every second.

The last measurement is taken after the last round and before anything shuts down. Measuring the memory of a Ray cluster
of ten processes takes 35 ms: a higher rate would slow down the run.
"""

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from ..measure import Tree
from .workloads import Task

PERIOD_S, MEMORY_PERIOD_S = 0.2, 1.0
END_S = 60.0  # for what a run does after its last round


@dataclass(frozen=True)
class Reading:
    """One run, in seconds and bytes.

    ``rounds_s`` are the rounds after the first. ``first_s`` is the time from the start of the process to the end of its
    first round. ``cpu_rounds_s`` is CPU per round after the first, ``cpu_s`` all CPU time. ``reading_s`` is the CPU
    time of the measurements themselves.
    """

    first_s: float
    rounds_s: list[float]
    cpu_s: float
    cpu_rounds_s: float
    peak_pss: int
    reading_s: float


def measure(task: Task, command: list[str], environment: dict[str, str], folder: Path, timeout: float) -> Reading:
    """Run ``command`` in ``folder``. Raises RuntimeError with one clause if it fails."""
    own, start, log = time.process_time(), time.time(), task.folder / "log.txt"
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}  # each starts its own Ray
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=inherited | environment, stdout=output, stderr=subprocess.STDOUT
        )
    tree, times, cpu, peak, memory_due = Tree(psutil.Process(process.pid)), [], [], 0, 0.0
    released, deadline = False, start + timeout
    try:
        while process.poll() is None:
            finished = (task.folder / "finished").exists()
            if not released:
                times.append(time.time())
                cpu.append(tree.cpu())
                if finished or time.monotonic() >= memory_due:
                    memory_due = time.monotonic() + MEMORY_PERIOD_S
                    peak = max(peak, tree.pss())
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
    first, last = np.interp([ends[0], ends[-1]], times, cpu)
    own = time.process_time() - own
    return Reading(
        ends[0] - start,
        np.diff(ends).tolist(),
        cpu[-1],
        float(last - first) / (len(ends) - 1),
        peak,
        own,
    )


def reason(log: Path, status: int) -> str:
    """Return the last line of ``log`` that names an error, or its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or "Exception" in line] or lines
    return named[-1][:160] if named else f"exit status {status}"
