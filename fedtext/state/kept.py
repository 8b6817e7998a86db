"""The checkpoints that a folder has, and the latest one that is sound."""

import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtext.errors import UserError
from fedtext.records import RoundRecord
from fedtext.state import segments
from fedtext.state.digests import damage

REPLACED = "the checkpoints in {} are replaced while they are read: try again, or once the run has ended"
LOOKS = 10  # at a folder whose writer replaces the checkpoints that are being read
FORMAT = 2  # of a checkpoint; the first one had a file for each client, and all records in state.json
WITH_FIXED = 3  # the same with parameters that never change, of some runs with an adapter; it is no longer written
STATE = "state.json"  # what a checkpoint is: its format, fingerprint, round and number of records


def kept(folder: Path) -> list[Path]:
    """Return the checkpoints in order. Other files and folders, such as a copy of one, are ignored."""
    return sorted(path for path in folder.glob("round-*") if re.fullmatch(r"round-[0-9]+", path.name))


def round_of(state: Path) -> int:
    """Return the round after which a checkpoint was written."""
    return int(state.name.removeprefix("round-"))


def latest(folder: Path, warn: bool = False, records: bool = False) -> tuple[Path, dict[str, Any]] | None:
    """Return the latest undamaged checkpoint, and the content of its ``STATE``; None if the folder has no checkpoint.

    Args:
        folder: The folder.
        warn: Whether to log a warning if later ones are damaged.
        records: Whether its records alone are to be read, which are the same in format ``WITH_FIXED``.

    Raises:
        UserError: Every checkpoint is damaged, or cannot be read by this user, or another version of fedtext has
            written the latest one, or the run replaces them faster than they can be read.
    """
    for _ in range(LOOKS):
        states = kept(folder)
        found, damaged = _sound(states, warn, (FORMAT, WITH_FIXED) if records else (FORMAT,))
        if found or not damaged:
            return found
        if all(state.exists() for state in states):
            raise UserError(f"{damaged}, and there is no earlier one: remove {folder} to start its run again")
    raise UserError(REPLACED.format(folder))


def _sound(
    states: Sequence[Path], warn: bool, formats: Collection[int]
) -> tuple[tuple[Path, dict[str, Any]] | None, str]:
    """Return the latest undamaged one of these checkpoints as ``latest`` does, and what is wrong with the last one."""
    damaged: list[str] = []
    for state in reversed(states):
        try:
            problem = damage(state)
            content = {} if problem else json.loads((state / STATE).read_bytes())
        except PermissionError as error:
            said = "can be read by its owner alone: work on it as that user"
            raise UserError(f"the checkpoint {state} {said}") from error
        except FileNotFoundError as error:  # it was removed meanwhile
            problem, content = str(error), {}
        if not problem:
            for each in damaged if warn else ():
                logging.getLogger(__name__).warning("%s; going back to round %d", each, round_of(state))
            _check_format(state, content.get("format", 1), formats)
            return (state, content), ""
        damaged.append(problem)
    return None, damaged[0] if damaged else ""


def records_of(state: Path, content: Mapping[str, Any]) -> list[RoundRecord]:
    """Return the records in a checkpoint whose ``STATE`` has this content."""
    names = [segments.records_file(first, last) for first, last in segments.blocks(content["records"])]
    return [record for name in names for record in segments.records((state / name).read_bytes())]


def _check_format(state: Path, written: int, formats: Collection[int]) -> None:
    """Raise UserError if another version of fedtext wrote a checkpoint in another format than these."""
    if written in formats:
        return
    version = "an earlier version" if written <= WITH_FIXED else "a later version"
    raise UserError(
        f"{version} of fedtext wrote the checkpoint {state} (format {written}, and this one reads {FORMAT}): "
        f"continue its run with that version, or remove {state.parent} to start it again"
    )
