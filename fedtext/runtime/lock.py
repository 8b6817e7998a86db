"""The lock of a run's folder, by which one command at a time works on a run. It ends with the process that has it."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = ".lock"  # the file
PATIENCE_S, LOOK_S = 1.0, 0.05  # of a command that finds a run locked: a list of runs locks it for an instant
_UNSUPPORTED = (errno.ENOSYS, errno.ENOTSUP, errno.EINVAL, errno.ENOLCK)  # by filesystems without locks
_LOCKED: set[Path] = set()  # the runs that this process has locked


def lock(folder: Path) -> bool:
    """Lock a run until this process ends. Returns False if another command has locked it."""
    if folder not in _LOCKED:
        if _acquired(folder) is None:
            return False
        _LOCKED.add(folder)
    return True


@contextmanager
def locked(folder: Path, remove: bool = False, patience_s: float = PATIENCE_S) -> Iterator[bool]:
    """Lock a folder, such as that of a run, in this block, and yield whether it is locked.

    Args:
        folder: The folder, which is created.
        remove: Whether the file of the lock is removed at the end.
        patience_s: How long to wait for another command that has locked it; then False is yielded.
    """
    if folder in _LOCKED:
        yield True
        return
    file = _acquired(folder, patience_s)
    try:
        yield file is not None
    finally:
        if file is not None:
            with suppress(OSError):  # a file that stays locks nothing
                if remove:  # before the lock ends: then it is another command's
                    (folder / LOCK).unlink()
            os.close(file)


def is_locked(folder: Path) -> bool:
    """Whether a command on this machine works on a run."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _flocked(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _acquired(folder: Path, patience_s: float = PATIENCE_S) -> int | None:
    """Return the locked file, which is open, and so locked, until it is closed; None if another command has it."""
    deadline = time.monotonic() + patience_s
    while True:
        folder.mkdir(parents=True, exist_ok=True)  # the command that had it may have removed it
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
        locked = _flocked(file, fcntl.LOCK_EX)
        if locked and _lies_at(folder / LOCK, file):
            return file
        os.close(file)
        if locked:
            continue
        if time.monotonic() > deadline:
            return None
        time.sleep(LOOK_S)


def _flocked(file: int, kind: int) -> bool:
    """Lock an open file unless it is locked, and return whether. In a filesystem without locks it counts as locked."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _UNSUPPORTED
    return True


def _lies_at(place: Path, file: int) -> bool:
    """Whether the open file is the one at a place: it may have been removed."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(place))
    except FileNotFoundError:
        return False
