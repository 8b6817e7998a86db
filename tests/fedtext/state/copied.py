"""A run's folder and its copy on an object store, for the tests of copies."""

from pathlib import Path

import numpy as np

from fedtext.records import RoundRecord
from fedtext.runtime.remote import Remote
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.copy import Copy
from tests.stores import Store


def copy_of(store: Store, folder: Path) -> Copy:
    return Copy(folder, Remote(store.uri(f"runs/{folder.name}"), "storage"))


def save(folder: Path, round_: int) -> None:
    """Write the checkpoint of a round of the only trial, beside the run's other files."""
    records = [RoundRecord(n, 0.0, {"Ag": n / 10}, {}) for n in range(1, round_ + 1)]
    state = folder / "00-a" / "checkpoint"
    Checkpoints(state, "print").save(
        np.full(3, round_, np.float32), {0: b"zero", 1: b"one"}, records, extra={"audit": b"private"}
    )
    (folder / "plan.json").write_text('{"command": "sweep"}')
    (folder / "00-a" / "tracking.json").write_text(f'{{"last_round": {round_}}}')


def rounds(store: Store) -> dict[str, list[str]]:
    """The files of each checkpoint on the store."""
    found: dict[str, list[str]] = {}
    for name in store.files("runs/first/00-a/checkpoint"):
        if "/" in name:
            found.setdefault(name.partition("/")[0], []).append(name.partition("/")[2])
    return found
