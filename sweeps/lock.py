"""The lock of a run's folder, by which one command at a time works on a run."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeps.places import LOCK

PATIENCE_S, LOOK_S = 1.0, 0.05  # of a command that finds a run locked: a list of runs locks it for an instant
_LOCKED: set[Path] = set()  # the runs that this process has locked


def lock(folder: Path) -> bool:
    """Lock a run until this process ends. Returns False if another command has locked it."""
    if folder not in _LOCKED:
        if _acquired(folder) is None:
            return False
        _LOCKED.add(folder)
    return True


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Lock a run in this block, and yield whether it is: False if another command has locked it. The folder is
    created."""
    if folder in _LOCKED:
        yield True
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = _acquired(folder)
    try:
        yield file is not None
    finally:
        if file is not None:
            os.close(file)


def is_locked(folder: Path) -> bool:
    """Whether a command on this machine works on a run."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _acquired(folder: Path) -> int | None:
    """Return the locked file, which is open, and so locked, until it is closed; None if another command has it."""
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() > deadline:
                os.close(file)
                return None
            time.sleep(LOOK_S)
