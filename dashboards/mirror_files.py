"""The files by which a mirror of a run in MLflow goes on in another process: its state, and what MLflow lacks."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from dashboards.description import Description, End
from fedtext.errors import UserError
from fedtext.records import RoundRecord
from fedtext.runtime.json_files import read_json

STATE_FILE, SPOOL_FILE = "tracking.json", "spool.jsonl"
ANEW = "bring it back from a copy of the run, or remove it, and the run is recorded anew in MLflow"


class Owed(TypedDict, total=False):
    """The parts of a run that MLflow lacks, without its records."""

    description: Description | None
    changed: Description | None  # the present content of a run that was described otherwise
    described: dict[str, str]
    model: str
    end: End | None


class Known(TypedDict, total=False):
    """A run, as one store has it."""

    experiment_id: str | None
    run_id: str | None
    token: str | None
    status: str
    last_round: int
    texts: str  # digest of the files of its description
    owed: Owed


class State(Known, total=False):
    """``tracking.json``."""

    uri: str
    elsewhere: dict[str, Known]  # the runs in other stores, by their addresses


def read_state(folder: Path) -> State:
    """Return the state that an earlier process left in a folder; empty if there is none.

    Raises:
        UserError: It is damaged.
    """
    file = folder / STATE_FILE
    return read_json(file, State, ANEW) if file.exists() else State()


def of_store(state: State, uri: str) -> dict[str, Any]:
    """Return a state as a run goes on in the store of this address: with the run that it has, if one is known.

    A store may have several addresses: one that is new is asked for the last run, with what the store was owed.

    Args:
        state: What an earlier process has left, perhaps of another store.
        uri: The address.
    """
    found: dict[str, Any] = {"elsewhere": {}, **state}
    before = state.get("uri", uri)
    if before != uri:
        found["elsewhere"][before] = {key: found[key] for key in Known.__annotations__ if key in found}
        if uri in found["elsewhere"]:
            found |= {"owed": {}, **found["elsewhere"].pop(uri)}
    return found


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write the state to a folder, which is made if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / STATE_FILE, json.dumps(state, indent=1, default=asdict) + "\n")


def read_spool(folder: Path) -> list[RoundRecord]:
    """Return the records that an earlier process could not deliver.

    Raises:
        UserError: Their file is damaged.
    """
    path = folder / SPOOL_FILE
    try:
        lines = path.read_text().splitlines() if path.exists() else []
        return [RoundRecord.from_json(json.loads(line)) for line in lines if line]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}): {ANEW}") from error


def write_spool(folder: Path, owing: Sequence[RoundRecord]) -> None:
    """Write records that could not be delivered. Without any their file is removed."""
    path = folder / SPOOL_FILE
    if owing:
        _write(path, "".join(json.dumps(record.to_json()) + "\n" for record in owing))
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Replace the file at once: a process that is killed here leaves the old file."""
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_text(text)
    os.replace(fresh, path)
