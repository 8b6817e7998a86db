"""Measurements for all benchmarks: CPU time and memory of a tree of processes, medians, tables, JSON files."""

import contextlib
import gc
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fedtext.runtime.memory import return_freed


class Tree:
    """A process (by default this one) and all its descendants, also those whose parent ends before them.

    ``seen`` holds the CPU seconds, user and system, of every process that was found, as of its last measurement: what
    it used afterwards is missing. Usage reported to parents would not do: Ray's daemons do not wait for their children.
    """

    def __init__(self, root: psutil.Process | None = None) -> None:
        self.root = root or psutil.Process()
        self.seen: dict[psutil.Process, float] = {self.root: 0.0}

    def alive(self) -> list[psutil.Process]:
        """Find new processes; return those that run. A process is identified by its id and start time, since ids are
        reused."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in self.root.children(recursive=True):
                self.seen.setdefault(process, 0.0)
        return [process for process in self.seen if process.is_running()]

    def cpu(self) -> float:
        """Return the CPU seconds of all processes so far."""
        for process in self.alive():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                used = process.cpu_times()
                self.seen[process] = used.user + used.system
        return sum(self.seen.values())

    def pss(self) -> int:
        """Return the bytes of memory, shared pages counted once (proportional set size).

        It takes milliseconds, since it walks the page tables of every process.
        """
        total = 0
        for process in self.alive():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_full_info().pss
        return total

    def kill(self) -> None:
        """Kill the remaining processes."""
        for process in self.alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@contextlib.contextmanager
def peak_pss(every: float) -> Iterator[list[int]]:
    """Measure the peak memory of this process and its descendants within the block: the list's only entry."""
    tree, done = Tree(), threading.Event()
    peak = [tree.pss()]

    def sample() -> None:
        while not done.wait(every):
            peak[0] = max(peak[0], tree.pss())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak[0] = max(peak[0], tree.pss())


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> bool:
    """Reset this process's peak of memory. Returns False where the system cannot (only Linux can)."""
    gc.collect()
    try:
        return_freed(above=0)  # ENVIRONMENT makes malloc keep memory, which would count in the next peak
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def peak_rss() -> int:
    """Return the peak memory of this process since ``reset_peak``, in bytes. Linux counts it; no thread polls."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


@dataclass(frozen=True)
class Times:
    """Milliseconds per step and client, of each repetition."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def in_turns(
    runs: dict[str, tuple[Callable[[int], None], int]], steps: int, turns: int, wait: Callable[[], None] = lambda: None
) -> dict[str, Times]:
    """Measure CPU time of this process and wall time of some loops.

    The loops alternate, with the same number of steps in each repetition. ``wait`` returns when the work that a loop
    has launched is done.
    """
    for run, _ in runs.values():
        run(3)
    wait()
    found = {name: Times() for name in runs}
    for _ in range(turns):
        for name, (run, clients) in runs.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run(steps)
            wait()
            found[name].cpu.append(1000 * (time.process_time() - cpu) / steps / clients)
            found[name].wall.append(1000 * (time.perf_counter() - wall) / steps / clients)
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def paired(slow: Sequence[float], fast: Sequence[float]) -> dict[str, float]:
    """Return the ratio within each repetition, so that drifting speed of the machine cancels."""
    return spread([a / b for a, b in zip(slow, fast, strict=True)])


def shown(value: Any) -> str:
    if isinstance(value, dict):
        low, mid, high = (shown(float(value[key])) for key in ("min", "median", "max"))
        return mid if low == high else f"{mid} ({low}-{high})"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows with the same columns as a Markdown table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    lines += ["| " + " | ".join(shown(row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
    return {"cpu": name, "cores": os.cpu_count(), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}


def write(path: Path | None, content: Any) -> None:
    if path:
        path.write_text(json.dumps({"machine": machine(), "figures": content}, indent=1))
