"""Folders that are written: results, the cache, Ray's files."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedtext.errors import UserError, writing
from fedtext.runtime.folders import cache_folder
from sweeps.doctor.finding import About, Finding, size
from sweeps.places import STORAGE, home

LITTLE = 1e9  # bytes: less free space is worth a warning
PROBE = bytes(1 << 16)
_about = About("storage")


def written() -> Iterator[Finding]:
    """Yield what is found of the folders that every sweep writes."""
    yield folder(home() / STORAGE, "results", "or set $FEDTEXT_HOME")
    yield from caches()


def caches() -> Iterator[Finding]:
    """Yield what is found of the folders of the cache and of temporary files."""
    yield folder(cache_folder(), "cache", "or set $FEDTEXT_CACHE")
    yield folder(Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()), "temporary files", "or set $RAY_TMPDIR")


def folder(path: Path, what: str, otherwise: str) -> Finding:
    """Write a file to a folder, or where it would be created, and remove it; and measure the free space.

    Args:
        path: The folder.
        what: What it is for.
        otherwise: What else a person can do.
    """
    nearest = next(one for one in (path, *path.parents) if one.exists())
    try:
        with writing(path, what), tempfile.TemporaryFile(dir=nearest) as probe:
            probe.write(PROBE)
            probe.flush()
            os.fsync(probe.fileno())
    except UserError as error:
        return _about.problem(f"{error}, {otherwise}")
    free = shutil.disk_usage(nearest).free
    if free < LITTLE:
        return _about.warning(f"{what}: {path} has {size(free)} free", f"free space there, {otherwise}")
    return _about.ok(f"{what}: {path} can be written, {size(free)} free")
