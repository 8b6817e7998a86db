"""Folders that become visible by one rename, once everything in them is on the disk."""

import errno
import hashlib
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from fedtext.errors import UserError
from fedtext.runtime import durable
from fedtext.state.digests import SUMS, sums

WRITERS = 8  # files that are written at the same time
MODE = 0o600  # of every file: its owner alone reads it
_FATAL = (errno.ENOENT, errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # a copy instead of a link would fail as well


def write_folder(target: Path, files: Mapping[str, bytes], other: Path, linked: Mapping[str, str]) -> dict[str, str]:
    """Write a folder with ``SHA256SUMS``, which its owner alone can read. An existing one is replaced.

    Args:
        target: The folder.
        files: The content of each file that is new, by name.
        other: A folder from which files are taken over: by hard links, or copied where there are none.
        linked: The digests of these files, by name.

    Returns:
        The digest of each file, by name.

    Raises:
        OSError: It cannot be written. An existing one is left unchanged, and no draft is left.
    """
    draft = target.with_name(f".draft-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        durable.make_folder(target.parent)
        draft.mkdir(mode=0o700)
        for name in linked:
            _link(other / name, draft / name)
        with ThreadPoolExecutor(WRITERS) as pool:  # each file waits for the disk
            digests = dict(zip(files, pool.map(_digest, files.values()), strict=True)) | dict(linked)
            contents = {**files, SUMS: sums(digests)}
            for written in [pool.submit(durable.create, draft / name, data, MODE) for name, data in contents.items()]:
                written.result()
        durable.sync(draft)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if target.exists():  # it is damaged: otherwise it would have been loaded
        remove_folder(target)
    os.replace(draft, target)
    durable.sync(target.parent)
    return digests


def remove_folder(folder: Path) -> None:
    """Remove a folder. It is renamed to a draft first, so that an incomplete one is never seen."""
    draft = folder.with_name(f".draft-{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    os.replace(folder, draft)
    shutil.rmtree(draft)


@contextmanager
def replacement(folder: Path) -> Iterator[Path]:
    """Give an empty folder, which takes the place of ``folder`` once the block has ended without an exception.

    Yields:
        The path of the empty folder, beside ``folder``.
    """
    draft = folder.with_name(f".{folder.name}-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        yield draft
        if folder.exists():
            remove_folder(folder)
        os.replace(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_others(folder: Path, names: Collection[str]) -> None:
    """Check that a folder that is to be replaced, if there is one, has no files but those of these names.

    Raises:
        UserError: It has others.
    """
    if folder.exists() and (others := sorted({path.name for path in folder.iterdir()}.difference(names))):
        raise UserError(f"{folder} also has {others[0]}, which would be lost: name another folder")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:  # not every filesystem has hard links
        if error.errno in _FATAL:
            raise
        durable.create(target, source.read_bytes(), MODE)
