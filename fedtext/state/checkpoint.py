"""The state of a run after a round, on disk: server, all clients, and the records of all rounds.

A checkpoint is a folder that becomes visible by one rename, so that a reader always finds a complete one, whenever a
writer dies. Its ``SHA256SUMS`` (in the format of sha256sum) has the digest of every other file, which is checked when
it is loaded. The last two sound checkpoints are kept: if the last one is damaged, a run continues from the one before
it, with the same results. A checkpoint belongs to the simulation: it has the private state of clients, which a real
server would not see; its owner alone can read it.

A checkpoint writes what is new since an earlier one, and shares the rest with it by hard links: blocks of earlier
records, and private states of clients that have not trained since. A checkpoint shares files with the one before the
last, never with the last one, so that no damaged file is part of both that are kept.
"""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtext.errors import UserError, writing
from fedtext.records import RoundRecord
from fedtext.state import segments
from fedtext.state.digests import SUMS
from fedtext.state.draft import remove_folder, write_folder
from fedtext.state.kept import FORMAT, LOOKS, REPLACED, STATE, kept, latest, records_of, round_of
from fedtext.state.seal import StateKey, check_key
from fedtext.state.written import Written

__all__ = ["SUMS", "Checkpoints", "OtherRunError", "Snapshot", "glance", "history", "recorded"]

KEPT = 2  # checkpoints of a run
SERVER = "server.f32"
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
        key: Encrypts the states of server and clients, but not records; None: nothing is encrypted.
        coefficients: Those of the server's noise, with which the run goes on wherever it does.
    """

    def __init__(
        self, folder: Path, fingerprint: str, key: StateKey | None = None, coefficients: Sequence[float] = ()
    ) -> None:
        self.folder, self.fingerprint, self.key = folder, fingerprint, key
        self.coefficients = list(coefficients)
        self.written: list[Written] = []  # the last ones, at most two
        self.damaged: set[Path] = set()  # later than the one that was loaded
        self.settled = 0  # number of records that both of them have: ``save`` needs no metrics of clients of these

    def changed(self, clients: Iterable[int]) -> None:
        """Note that the private states of these clients have changed."""
        clients = list(clients)
        for each in self.written:
            each.changed.update(clients)

    def wanted(self) -> list[int] | None:
        """Return the ids of the clients whose private states the next ``save`` needs; None: it needs those of all."""
        base = self._base()
        if base is None or not base.is_there() or base.is_worn():
            self.written = self.written[KEPT - 1 :] if base else self.written
            return None
        return sorted(base.changed)

    def _base(self) -> Written | None:
        return self.written[0] if len(self.written) == KEPT else None

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

        Those that ``load`` has found damaged are removed too, and none of them is the one.

        Args:
            flat: The shared parameters.
            clients: Private states by client: those that ``wanted`` has named, or those of all that have one. An
                empty one is not written, unless it supersedes another.
            history: The record of each completed round. Earlier ones are those of the last ``save``. The first
                ``settled`` ones are not read.
            moments: The state of the server's optimizer, by name.
            selected: As in ``Snapshot``.
            extra: More files by name.

        Raises:
            UserError: It cannot be written, or earlier checkpoints, whose records it takes over, were removed or are
                damaged. Existing checkpoints are left unchanged.
            ValueError: The private state of a client is missing.
        """
        round_ = history[-1].round
        target = self.folder / f"round-{round_:06d}"
        self.written = [each for each in self.written if each.folder != target]
        base = self._base()
        needed = base.changed if base else self._unchanged()
        if missing := needed - set(clients):
            raise ValueError(f"the private state of client {min(missing)} is missing")
        clients = {client: state for client, state in clients.items() if state or (base and client in base.clients)}
        places = {client: at for client, at in base.clients.items() if client not in clients} if base else {}
        linked = {name: base.digests[name] for name, _ in places.values()} if base else {}
        about = {"format": FORMAT, "fingerprint": self.fingerprint, "round": round_, "records": len(history)}
        about |= {"key": self.key.id} if self.key else {}
        about |= {"coefficients": self.coefficients} if self.coefficients else {}
        files = {SERVER: flat.tobytes()}
        if moments:
            files[MOMENTS] = save(dict(moments))
        if selected is not None:
            files[SELECTED] = selected.tobytes()
        if clients:
            name = segments.clients_file(round_)
            files[name] = segments.pack(clients)
            places |= {client: (name, len(state)) for client, state in clients.items()}
        files |= {EXTRA + name: data for name, data in (extra or {}).items()}
        if self.key:
            files = {name: self.key.seal(data, self._named(name, round_)) for name, data in files.items()}
        files[STATE] = json.dumps(about).encode()
        for first, last in segments.blocks(len(history)):
            name = segments.records_file(first, last)
            if base and name in base.digests:
                linked[name] = base.digests[name]
            else:
                files[name] = self._lines(first, last, history)
        digests = self._write(target, files, base.folder if base else self.folder, linked)
        self.written = [*self.written, Written(target, digests, places, len(history))][-KEPT:]
        if len(self.written) == KEPT:
            self.settled = self.written[0].records

    def _unchanged(self) -> set[int]:
        """Return the clients that have the private state of the last checkpoint. Those that have trained since may have
        none any more: what a method keeps can differ from round to round."""
        last = self.written[-1] if self.written else None
        return {i for i, (_, size) in last.clients.items() if size and i not in last.changed} if last else set()

    def _lines(self, first: int, last: int, history: list[RoundRecord]) -> bytes:
        """Return the records of these rounds: those that are settled as an earlier checkpoint has them."""
        if first > self.settled:
            return segments.lines(history[first - 1 : last])
        for each in reversed(self.written):
            if (there := each.lines(first, last)) is not None:
                return there + segments.lines(history[each.records : last])
        raise UserError(f"the records of round {first} in {self.folder} were removed or are damaged")

    def _write(self, target: Path, files: Mapping[str, bytes], other: Path, same: Mapping[str, str]) -> dict[str, str]:
        there = kept(self.folder)
        then = f"the last checkpoint is that of round {round_of(there[-1])}" if there else "there is no checkpoint yet"
        with writing(self.folder, f"the checkpoint of round {round_of(target)}", then):
            digests = write_folder(target, files, other, same)
            others = [path for path in kept(self.folder) if path != target]
            sound = [path for path in others if path not in self.damaged]
            for path in {*others} - {*sound} | {*[path for path in sound if path < target][: 1 - KEPT]}:
                remove_folder(path)
        self.damaged = set()
        return digests

    def _named(self, name: str, round_: int) -> str:
        """Return the name under which a file is encrypted: with the run, and with the round in which it was written."""
        shared = segments.CLIENTS.fullmatch(name)  # its own name has the round
        return f"{self.fingerprint}/{name}" if shared else f"{self.fingerprint}/{round_}/{name}"

    def _read(self, state: Path, name: str) -> bytes:
        content = (state / name).read_bytes()
        return self.key.open(content, self._named(name, round_of(state))) if self.key else content

    def load(self) -> Snapshot | None:
        """Return the latest undamaged state; None if there is none. Damage is logged as a warning.

        Raises:
            UserError: Every checkpoint is damaged, another version of fedtext has written the latest one, or it is
                encrypted with another key.
            OtherRunError: They belong to another experiment or other data.
        """
        for draft in self.folder.glob(".draft-*"):  # of a process that died while it wrote or removed a checkpoint
            shutil.rmtree(draft, ignore_errors=True)
        found = latest(self.folder, warn=True)
        if not found:
            return None
        state, content = found
        if content["fingerprint"] != self.fingerprint:
            raise OtherRunError(
                f"the checkpoint in {self.folder} was made by another experiment or from other data: choose another "
                "folder, or remove that one"
            )
        check_key(self.key, content.get("key"), f"the checkpoint {state}")
        self.damaged = {path for path in kept(self.folder) if path > state}
        names = {path.name for path in state.iterdir() if not segments.RECORDS.fullmatch(path.name)} - {STATE, SUMS}
        files, clients = {name: self._read(state, name) for name in names}, dict[int, bytes]()
        for name in segments.clients_files(files):
            clients |= segments.unpack(files.pop(name))
        return Snapshot(
            content["round"],
            np.frombuffer(files[SERVER], np.float32),
            dict(sorted(clients.items())),
            records_of(state, content),
            load(files[MOMENTS]) if MOMENTS in files else {},
            np.frombuffer(files[SELECTED], np.float32) if SELECTED in files else None,
            {name.removeprefix(EXTRA): data for name, data in files.items() if name.startswith(EXTRA)},
        )


def history(folder: Path) -> list[RoundRecord]:
    """Return the records of the completed rounds of the run in ``folder``; empty without checkpoints.

    Raises:
        UserError: Every checkpoint is damaged, or another version of fedtext has written the latest one, or they are
            replaced faster than they can be read.
    """
    for _ in range(LOOKS):
        found = latest(folder, records=True)
        try:
            return records_of(*found) if found else []
        except FileNotFoundError:  # the command that works on the run has removed it meanwhile
            continue
    raise UserError(REPLACED.format(folder))


def glance(folder: Path) -> list[RoundRecord]:
    """Return the records of the latest checkpoint without checking its files, for lists; empty if there is none."""
    for state in reversed(kept(folder)):
        try:
            return records_of(state, json.loads((state / STATE).read_bytes()))
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
        UserError: Every checkpoint is damaged, or another version of fedtext has written the latest one.
    """
    found = latest(folder, warn=True)
    return found[1]["fingerprint"] if found else None


def coefficients(folder: Path) -> list[float]:
    """Return the coefficients of the server's noise of the run in ``folder``; empty if there are none.

    Raises:
        UserError: As in ``recorded``.
    """
    found = latest(folder)
    return [float(number) for number in found[1].get("coefficients", [])] if found else []
