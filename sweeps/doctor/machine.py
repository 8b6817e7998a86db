"""This machine: CPUs, memory, shared memory, the compiler, GPUs."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sweeps.doctor.finding import About, Finding, size

SHARED = Path("/dev/shm")
OBJECT_STORE = 0.3  # the share of memory that Ray gives to its object store
ANSWER_S = 10  # seconds for nvidia-smi
_about = About("machine")


def hardware() -> Iterator[Finding]:
    """Yield what is found of CPUs, memory and shared memory. torch is not imported."""
    memory = memory_bytes()
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = memory.get("MemAvailable", 0)
    yield _about.ok(f"CPUs: {cpus}" + (f"; memory: {size(memory['MemTotal'])}, {size(free)} free" if free else ""))
    if SHARED.is_dir() and memory:
        yield shared_memory(SHARED, OBJECT_STORE * memory["MemTotal"])


def memory_bytes() -> dict[str, float]:
    """Return /proc/meminfo in bytes, by name, no more than this container's limit; empty where there is none."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    found = {name: 1024.0 * int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
        found["MemTotal"] = min(found["MemTotal"], float(text))
        found["MemAvailable"] = min(found["MemAvailable"], found["MemTotal"])
    return found


def shared_memory(folder: Path, wanted: float) -> Finding:
    """Compare a file system in memory with the object store that Ray would put there.

    Args:
        folder: Where it is mounted, /dev/shm.
        wanted: Size of the object store, in bytes.
    """
    there = shutil.disk_usage(folder)
    if there.free < wanted:
        return _about.warning(
            f"{folder} has {size(there.free)} free, less than Ray's object store of {size(wanted)}, which goes to disk",
            f"enlarge it (docker run --shm-size={wanted / 1e9:.0f}g), or ray start --object-store-memory with less",
        )
    return _about.ok(f"{folder}: {size(there.free)} free, enough for Ray's object store of {size(wanted)}")


def gpus() -> Iterator[Finding]:
    """Yield what is found of GPUs: those of the driver, and whether torch can use them."""
    cards, trouble = driver()
    if trouble:
        yield _about.warning(f"nvidia-smi does not work ({trouble})", "repair the NVIDIA driver, or train on CPUs")
        return
    from fedtext.runtime.devices import no_cuda  # imports torch

    reason = no_cuda()
    if cards and reason:
        remedy = "install torch for CUDA (pytorch.org/get-started), or start Ray with --num-gpus=0"
        yield _about.warning(f"GPUs: {'; '.join(cards)}; {reason}, so clients would train on the CPU", remedy)
    elif cards:
        yield _about.ok(f"GPUs: {'; '.join(cards)}; torch can use them")
    elif reason:
        yield _about.ok("no GPU: clients train on the CPU")
    else:
        import torch

        yield _about.ok(f"GPUs: {torch.cuda.device_count()} that torch can use")


def driver() -> tuple[list[str], str]:
    """Return the cards that the NVIDIA driver lists, or why it does not; neither where there is none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except FileNotFoundError:
        return [], ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], str(error)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return ([], (lines or [f"exit status {done.returncode}"])[0]) if done.returncode else (lines, "")


def compiler() -> Finding:
    """Compile the files of engine ``native``, unless that has been done, and say whether it can be used."""
    from fedtext.runtime.compiled import compile_problem, compiler_name  # imports torch

    if problem := compile_problem():
        return _about.warning(f"engine native cannot be used, cells or reference takes its place: {problem}")
    return _about.ok(f"C compiler: {compiler_name()}; engine native can be used")
