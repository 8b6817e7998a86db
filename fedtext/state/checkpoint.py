"""The state of a run after a round, on disk: server, all clients, and the records of all rounds.

A checkpoint becomes visible by one rename, so that a reader always finds a complete one, whenever a writer dies. Its
``SHA256SUMS`` (in the format of sha256sum) has the digest of every other file, which is checked when it is loaded. The
last two checkpoints are kept: if the last one is damaged, a run continues from the one before it, with the same
results. A checkpoint belongs to the simulation: it has the private state of clients, which a real server would not see.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtext.errors import UserError, writing
from fedtext.records import RoundRecord

KEPT = 2  # checkpoints of a run
WRITERS = 8  # files of a checkpoint that are written at the same time
SUMS = "SHA256SUMS"
STATE, SERVER = "state.json", "server.f32"
EXTRA = "extra-"  # prefix of the names of files that a caller adds
MOMENTS = "server-optimizer.safetensors"  # only if the optimizer has a state
SELECTED = "selected.f32"  # only with evaluation.select, if the selected round is not the last


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after a round.

    Attributes:
        round: Number of the round.
        flat: The shared parameters.
        clients: Private states of the clients, by id.
        history: The record of each completed round.
        moments: The state of the server's optimizer, by name.
        selected: The model of an earlier round that is the selected one; None: the last one is, or none is selected.
        extra: Files that a caller added, by name.
    """

    round: int
    flat: NDArray[np.float32]
    clients: dict[int, bytes]
    history: list[RoundRecord]
    moments: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    selected: NDArray[np.float32] | None = None
    extra: dict[str, bytes] = field(default_factory=dict)


class OtherRunError(UserError):
    """The checkpoints in a folder are those of another experiment or of other data."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: The folder of the run's state.
        fingerprint: Identifies the experiment and the data they belong to.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = folder, fingerprint

    def save(
        self,
        flat: NDArray[np.float32],
        clients: Mapping[int, bytes],
        history: list[RoundRecord],
        moments: Mapping[str, NDArray[np.float32]] | None = None,
        selected: NDArray[np.float32] | None = None,
        extra: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write the state after the last record's round, and remove all older checkpoints but one.

        Args:
            flat, clients, history, moments, selected: As in ``Snapshot``.
            extra: More files by name. They can be read by their owner alone (mode 0600).

        Raises:
            UserError: It cannot be written. Existing checkpoints are left unchanged.
        """
        records = [record.to_json() for record in history]
        content = {"fingerprint": self.fingerprint, "clients": sorted(clients), "history": records}
        files = {STATE: json.dumps(content).encode(), SERVER: flat.tobytes()}
        if moments:
            files[MOMENTS] = save(dict(moments))
        if selected is not None:
            files[SELECTED] = selected.tobytes()
        files |= {_client_file(client): state for client, state in clients.items() if state}
        files |= {EXTRA + name: data for name, data in (extra or {}).items()}
        round_ = history[-1].round
        there = _found(self.folder)
        kept = f"the last checkpoint is that of round {_round(there[-1])}" if there else "there is no checkpoint yet"
        with writing(self.folder, f"the checkpoint of round {round_}", kept):
            self._write(self.folder / f"round-{round_:06d}", files)

    def _write(self, target: Path, files: Mapping[str, bytes]) -> None:
        draft = self.folder / f".draft-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(parents=True)
            sums = _sums({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
            with ThreadPoolExecutor(WRITERS) as pool:  # each file waits for the disk
                for written in [pool.submit(_write, draft / n, data) for n, data in [*files.items(), (SUMS, sums)]]:
                    written.result()
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        if target.exists():  # it is damaged: otherwise load() would have returned it
            _remove(target)
        os.replace(draft, target)
        for older in [path for path in _found(self.folder) if path < target][: 1 - KEPT]:
            _remove(older)

    def load(self) -> Snapshot | None:
        """Return the latest undamaged state; None if there is none. Damage is logged as a warning.

        Raises:
            UserError: Every checkpoint is damaged.
            OtherRunError: They belong to another experiment or other data.
        """
        for draft in self.folder.glob(".draft-*"):  # of a process that died while it wrote or removed a checkpoint
            shutil.rmtree(draft, ignore_errors=True)
        found = _latest(self.folder, warn=True)
        if not found:
            return None
        state, content = found
        if content["fingerprint"] != self.fingerprint:
            raise OtherRunError(
                f"the checkpoint in {self.folder} was made by another experiment or from other data: choose another "
                "folder, or remove that one"
            )
        files = {path.name: path.read_bytes() for path in state.iterdir()}
        records = _records(content)
        return Snapshot(
            records[-1].round,
            np.frombuffer(files[SERVER], np.float32),
            {client: files.get(_client_file(client), b"") for client in content["clients"]},
            records,
            load(files[MOMENTS]) if MOMENTS in files else {},
            np.frombuffer(files[SELECTED], np.float32) if SELECTED in files else None,
            {name.removeprefix(EXTRA): data for name, data in files.items() if name.startswith(EXTRA)},
        )


def history(folder: Path) -> list[RoundRecord]:
    """Return the records of the completed rounds of the run in ``folder``; empty without checkpoints.

    Raises:
        UserError: Every checkpoint is damaged.
    """
    found = _latest(folder)
    return _records(found[1]) if found else []


def glance(folder: Path) -> list[RoundRecord]:
    """Return the records of the latest checkpoint without checking its files, for lists; empty if there is none."""
    for state in reversed(_found(folder)):
        try:
            return _records(json.loads((state / STATE).read_bytes()))
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ):  # damaged, or removed meanwhile by the command that works on the run
            continue
    return []


def recorded(folder: Path) -> str | None:
    """Return the fingerprint of the run in ``folder``; None without checkpoints.

    If the last checkpoint is damaged and another one is not, a warning is logged.

    Raises:
        UserError: Every checkpoint is damaged.
    """
    found = _latest(folder, warn=True)
    return found[1]["fingerprint"] if found else None


def _records(content: Mapping[str, Any]) -> list[RoundRecord]:
    return [RoundRecord.from_json(record) for record in content["history"]]


def _latest(folder: Path, warn: bool = False) -> tuple[Path, dict[str, Any]] | None:
    """Return the folder and the content of the latest undamaged checkpoint."""
    damaged: list[str] = []
    for state in reversed(_found(folder)):
        if not (problem := _damage(state)):
            for each in damaged if warn else ():
                logging.getLogger(__name__).warning("%s; going back to round %d", each, _round(state))
            return state, json.loads((state / STATE).read_bytes())
        damaged.append(problem)
    if damaged:
        raise UserError(f"{damaged[0]}, and there is no earlier one: remove {folder} to start its run again")
    return None


def _damage(state: Path) -> str:
    """Return what is wrong with the files of a checkpoint; empty if they are unchanged."""
    where = f"the checkpoint {state} is damaged"
    if not (state / SUMS).is_file():
        return f"{where}, or an earlier version wrote it: it has no {SUMS}"
    try:
        listed = (state / SUMS).read_bytes()
        there = {}
        for path in state.iterdir():
            if path.name != SUMS:
                with open(path, "rb") as stream:
                    there[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        return f"{where}: {error.filename} cannot be read ({error.strerror})"
    if listed == _sums(there):
        return ""
    expected = {line[66:]: line[:64] for line in listed.decode("utf-8", "replace").splitlines()}
    if missing := sorted(set(expected) - set(there)):
        return f"{where}: {missing[0]} is missing" if _sums(expected) == listed else f"{where}: {SUMS} has changed"
    if extra := sorted(set(there) - set(expected)):
        return f"{where}: {extra[0]} does not belong to it"
    changed = sorted(name for name in there if there[name] != expected[name])
    return f"{where}: {changed[0] if changed else SUMS} has changed since it was written"


def _sums(digests: Mapping[str, str]) -> bytes:
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode()


def _found(folder: Path) -> list[Path]:
    """Return the checkpoints in order. Other files and folders, such as a copy of one, are ignored."""
    return sorted(path for path in folder.glob("round-*") if re.fullmatch(r"round-[0-9]+", path.name))


def _round(state: Path) -> int:
    return int(state.name.removeprefix("round-"))


def _client_file(client: int) -> str:
    return f"client-{client:05d}.safetensors"


def _remove(state: Path) -> None:
    """Remove a checkpoint. It is renamed to a draft first, so that an incomplete one is never loaded."""
    draft = state.with_name(f".draft-{state.name}")
    os.replace(state, draft)
    shutil.rmtree(draft)


def _write(file: Path, content: bytes) -> None:
    mode = 0o600 if file.name.startswith(EXTRA) else 0o666
    with open(file, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
