"""What all benchmarks share: CPU time and memory of a tree of processes, medians, one table, one JSON file."""

import contextlib
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil


def cpu_tree(process: psutil.Process | None = None) -> float:
    """CPU seconds of a process, of the children that live, and of those it has waited for."""
    total = 0.0
    root = process or psutil.Process()
    for one in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def pss_tree(process: psutil.Process | None = None) -> int:
    """Bytes of memory of a process and all below it, shared pages counted once (proportional set size)."""
    total = 0
    root = process or psutil.Process()
    for one in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += one.memory_full_info().pss
    return total


@contextlib.contextmanager
def peak_pss(every: float = 0.25) -> Iterator[list[int]]:
    """Samples ``pss_tree`` meanwhile; the list's only entry is the largest so far."""
    peak, done = [pss_tree()], threading.Event()

    def sample() -> None:
        while not done.wait(every):
            peak[0] = max(peak[0], pss_tree())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def paired(slow: Sequence[float], fast: Sequence[float]) -> dict[str, float]:
    """The ratio turn by turn, so that a machine whose speed drifts does not decide."""
    return spread([a / b for a, b in zip(slow, fast, strict=True)])


def shown(value: Any) -> str:
    if isinstance(value, dict):
        low, mid, high = (shown(float(value[key])) for key in ("min", "median", "max"))
        return mid if low == high else f"{mid} ({low}-{high})"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of one kind as a Markdown table."""
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
