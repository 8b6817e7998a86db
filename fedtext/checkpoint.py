"""The state of a run at a round boundary, on disk: server, every client, and the rows of all rounds so far, together.

A checkpoint becomes visible by one rename, so a reader finds a whole one or the one before it, whenever a writer dies.
It belongs to the simulation: private client state lies in it beside the server's, which no real server would see.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtext.errors import UserError

Row = dict[str, Any]
MOMENTS = "server-optimizer.safetensors"  # only where the optimizer has any
SELECTED = "selected.f32"  # only where the best round's model counts, and it is not the last


@dataclass(frozen=True)
class Snapshot:
    """``history`` has one row per completed round, the last of them ``round``; ``moments`` is what the server's
    optimizer remembers, ``selected`` an earlier round's model that was the best."""

    round: int
    flat: NDArray[np.float32]
    clients: dict[int, bytes]
    history: list[Row]
    moments: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    selected: NDArray[np.float32] | None = None


class Checkpoints:
    """The checkpoints of one run in ``folder``; ``fingerprint`` names the experiment and the data they belong to."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = folder, fingerprint

    def save(
        self,
        flat: NDArray[np.float32],
        clients: Mapping[int, bytes],
        history: list[Row],
        moments: Mapping[str, NDArray[np.float32]] | None = None,
        selected: NDArray[np.float32] | None = None,
    ) -> None:
        """Writes the state after the last row's round and removes older ones."""
        target = self.folder / f"round-{history[-1]['round']:06d}"
        draft = self.folder / f".draft-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _write(draft / "server.f32", flat.tobytes())
        if moments:
            _write(draft / MOMENTS, save(dict(moments)))
        if selected is not None:
            _write(draft / SELECTED, selected.tobytes())
        for client, state in clients.items():
            if state:
                _write(draft / f"client-{client:05d}.safetensors", state)
        content = {"fingerprint": self.fingerprint, "clients": sorted(clients), "history": history}
        _write(draft / "state.json", json.dumps(content).encode())
        if target.exists():  # and is no state, or load() would have gone on behind it
            _remove(target)
        os.replace(draft, target)
        for older in _found(self.folder):
            if older < target:
                _remove(older)

    def load(self) -> Snapshot | None:
        """The latest state, or None. Raises UserError if it belongs to another experiment or other data."""
        for draft in self.folder.glob(".draft-*"):  # of a writer that died, or of one that died while it removed
            shutil.rmtree(draft, ignore_errors=True)
        found = _found(self.folder)
        if not found:
            return None
        content = json.loads((found[-1] / "state.json").read_text())
        if content["fingerprint"] != self.fingerprint:
            raise UserError(
                f"the checkpoint in {self.folder} was made by another experiment or from other data: choose another "
                "--name, or remove that folder"
            )
        clients = {}
        for client in content["clients"]:
            file = found[-1] / f"client-{client:05d}.safetensors"
            clients[client] = file.read_bytes() if file.exists() else b""
        flat = np.frombuffer((found[-1] / "server.f32").read_bytes(), np.float32)
        kept, best = found[-1] / MOMENTS, found[-1] / SELECTED
        moments = load(kept.read_bytes()) if kept.exists() else {}
        selected = np.frombuffer(best.read_bytes(), np.float32) if best.exists() else None
        for older in found[:-1]:  # of a writer that died before it could remove them
            _remove(older)
        return Snapshot(content["history"][-1]["round"], flat, clients, content["history"], moments, selected)


def history(folder: Path) -> list[Row]:
    """The rows of the completed rounds of the run whose checkpoints lie in ``folder``; none if there are none."""
    found = _found(folder)
    return json.loads((found[-1] / "state.json").read_text())["history"] if found else []


def recorded(folder: Path) -> str | None:
    """The fingerprint of the run whose checkpoints lie in ``folder``; None if there are none."""
    found = _found(folder)
    return json.loads((found[-1] / "state.json").read_text())["fingerprint"] if found else None


def _found(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("round-*") if (path / "state.json").exists())


def _remove(state: Path) -> None:
    """Makes it a draft again before anything in it goes, so that half a state is never taken for one."""
    draft = state.with_name(f".draft-{state.name}")
    os.replace(state, draft)
    shutil.rmtree(draft)


def _write(file: Path, content: bytes) -> None:
    with open(file, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
