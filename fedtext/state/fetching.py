"""A run's folder from its copy at a URI, which another machine may be changing meanwhile (copy.py)."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from fedtext.errors import UserError
from fedtext.runtime import durable
from fedtext.runtime.remote import Remote
from fedtext.state import checkpoint, noise_key
from fedtext.state.digests import damage

OWNER = "owner.json"  # at the URI
UNIT = re.compile(r"(?:(.*)/)?(round-[0-9]+)/([^/]+)")  # a file of a checkpoint
LOOKS = 10  # at a copy that its owner changes meanwhile


def fetch(remote: Remote, folder: Path) -> None:
    """Fetch what the copy has, and remove the outcomes of trials that have been continued elsewhere.

    Args:
        remote: Where the copy is.
        folder: The local folder of the run.

    Raises:
        UserError: The copy cannot be read.
    """
    there = names_in(remote)
    for file in folder.glob("*/outcome.json"):
        if file.relative_to(folder).as_posix() not in there:
            file.unlink()
    trials = dict.fromkeys(found[1] or "" for name in there if (found := UNIT.fullmatch(name)))
    for name in there:
        if not UNIT.fullmatch(name) and name != OWNER:
            if is_key(name):
                _remove_rounds_of_another_key(remote / name, folder / name)
            _fetch(remote / name, folder / name, 0o600 if is_key(name) else 0o666)
    for trial in trials:
        _fetch_last(remote / trial if trial else remote, folder / trial)


def names_in(remote: Remote) -> list[str]:
    """Return the names of the files in a part of the copy, without drafts."""
    return [name for name in remote.files() if not name.rpartition("/")[2].startswith(".")]


def is_key(name: str) -> bool:
    """Whether a file has a trial's key of secret noise."""
    return name.rpartition("/")[2] == noise_key.FILE


def _fetch_last(remote: Remote, folder: Path) -> None:
    """Fetch the checkpoints of a trial. Its owner may be replacing them: the last one of a look is enough.

    Raises:
        UserError: They cannot be read.
    """
    for _ in range(LOOKS):
        units = dict[str, list[str]]()
        for name in names_in(remote):
            if found := UNIT.fullmatch(name):
                units.setdefault(found[2], []).append(found[3])
        complete = sorted(unit for unit, names in units.items() if checkpoint.SUMS in names)
        whole = [_fetch_checkpoint(remote / unit, folder / unit, units[unit]) for unit in reversed(complete)]
        if not whole or whole[0]:
            return
    raise UserError(f"storage: {remote} changes faster than it can be read: try again")


def _fetch(source: Remote, target: Path, mode: int) -> bool:
    """Fetch a file. Returns False if it has been removed meanwhile."""
    try:
        source.fetch(target, mode)
    except UserError:
        if source.info() is not None:
            raise
        return False
    return True


def _fetch_checkpoint(source: Remote, target: Path, names: Sequence[str]) -> bool:
    """Fetch the files of a checkpoint. Returns False if it has been removed or replaced meanwhile."""
    content, kept = (source / checkpoint.SUMS).read(), target / checkpoint.SUMS
    if content is not None and kept.is_file() and kept.read_bytes() == content and not damage(target):
        return True
    draft = target.with_name(f".draft-{target.name}-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    durable.make_folder(target.parent)
    draft.mkdir(mode=0o700)
    try:
        whole = all(_fetch(source / name, draft / name, 0o600) for name in names)
        if whole and (source / checkpoint.SUMS).read() == content:
            shutil.rmtree(target, ignore_errors=True)
            os.replace(draft, target)
            durable.sync(target.parent)
            return True
        return False
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_rounds_of_another_key(source: Remote, key: Path) -> None:
    """Remove the checkpoints of a trial if the copy has another key of it than the local folder."""
    if key.is_file() and key.read_bytes() != source.read():
        for round_ in key.parent.glob("round-*"):
            shutil.rmtree(round_)
