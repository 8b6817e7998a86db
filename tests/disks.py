"""Small disks that are mounted in a test, and fill up."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A disk of this size. The test is skipped where this user cannot mount one."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("a disk can be mounted by root alone")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, leaving: int = 0) -> None:
    """Fill a disk, but for so many bytes."""
    with suppress(OSError), open(disk / "filled", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    if leaving:
        size = (disk / "filled").stat().st_size
        with open(disk / "filled", "r+b") as file:
            file.truncate(max(0, size - leaving))
