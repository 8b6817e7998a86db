"""A copy of a run's folder at a URI, from which the run continues on any machine.

The run works in its local folder. What has been completed there is copied: a checkpoint after each round, and small
files whenever a trial begins or ends. A checkpoint there is complete, or has no list of its files.

A request that fails is tried again, a few times. If that fails too the copy stays as it is, and what it lacks is copied
later: `Outage` says when. Files whose names begin with a dot belong to one machine: drafts, locks, ownership.

``owner.json`` names the process that works on the run. A machine that was believed dead, and still runs, finds another
owner there at its next copy and stops; what both wrote until then has the same bits.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fedtext.errors import OwnershipLostError, UserError
from fedtext.runtime.remote import Remote
from fedtext.state import checkpoint, ownership
from fedtext.state.checkpoint_copies import CheckpointCopies
from fedtext.state.fetching import OWNER, UNIT, fetch, is_key, names_in
from fedtext.state.outage import SILENCE_S, Outage


@dataclass(frozen=True)
class Copy:
    """The copy of one run.

    Attributes:
        folder: The local folder of the run.
        remote: Where its copy is.
        token: Identifies the owner that this process works for; empty: none yet.
        outage: What this process knows of failures of the store.
    """

    folder: Path
    remote: Remote
    token: str = ""
    _sent: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    _damaged: set[str] = field(default_factory=set, repr=False, compare=False)
    outage: Outage = field(default_factory=Outage, repr=False, compare=False)

    @staticmethod
    def of(folder: Path) -> "Copy | None":
        """Return the copy that a local folder is recorded to have; None if it has none."""
        kept = ownership.kept(folder)
        return Copy(folder, Remote(kept["uri"], "storage"), kept["token"]) if kept else None

    def exists(self, name: str) -> bool:
        """Whether the copy has a file of this name."""
        return (self.remote / name).info() is not None

    def pull(self) -> None:
        """Bring the local folder up to date, unless this machine was the last one that worked on the run.

        Checkpoints that the copy lacks stay: the results of a round do not depend on who computed it. Those of a trial
        that another machine has begun again with another key of secret noise are removed.

        Raises:
            UserError: The copy cannot be read, or the local folder has another run.
        """
        self.check_folder()
        if self._owner() in ownership.tokens(self.folder):
            return
        self.record()
        fetch(self.remote, self.folder)

    def check_folder(self) -> None:
        """Raise UserError if the local folder has another run."""
        before = Copy.of(self.folder)
        if before is not None and before.remote.uri != self.remote.uri:
            raise UserError(
                f"storage: {self.folder} belongs to {before.remote}, not to {self.remote}: move it away first"
            )
        if before is None and any(self.folder.glob("[!.]*")):
            raise UserError(
                f"storage: {self.folder} has another run of the name {self.folder.name}: move it away first"
            )

    def is_taken(self) -> bool:
        """Whether this machine has become the owner since it last brought the local folder up to date."""
        return bool(ownership.tokens(self.folder))

    def check_writable(self) -> None:
        """Raise UserError if files cannot be written to the copy."""
        probe = self.remote / f".probe-{secrets.token_hex(4)}"
        probe.write(b"")
        probe.remove()

    def take(self) -> "Copy":
        """Become the owner of the copy, and return it.

        Raises:
            UserError: The copy cannot be written.
        """
        taken = replace(self, token=secrets.token_hex(16))
        if here := self.folder.is_dir():  # killed at any point, this machine finds one of its own tokens at the copy
            taken.record(ownership.tokens(self.folder))
        owner = {"token": taken.token, "host": socket.gethostname(), "pid": os.getpid()}
        taken._write(OWNER, json.dumps(owner).encode())
        if here:
            taken.record()
        return taken

    def push(self, *parts: str, checkpoints: bool = False) -> None:
        """Copy what has changed.

        Args:
            parts: Folders of trials, copied whole, with the files of the run itself that the copy lacks; none: all of
                the run.
            checkpoints: Whether to copy checkpoints: only the process that writes them can.

        Raises:
            OwnershipLostError: Another process has become the owner of the copy.
            UserError: The copy cannot be written, or the store is left alone since it could not be. What it lacks then
                is copied by a later call.
        """
        self.outage.copy(lambda: self._push(parts or ("",), checkpoints))

    def _push(self, parts: Iterable[str], checkpoints: bool) -> None:
        self._check_owner()
        began = time.monotonic()
        for part in parts:
            base = self.remote / part if part else self.remote
            prefix = f"{part}/" if part else ""
            there = {prefix + name for name in self.outage.request(partial(names_in, base))}
            local = set(self._local(part))
            units = sorted({name.rpartition("/")[0] for name in local if UNIT.fullmatch(name)})
            plain = {name for name in local if not UNIT.fullmatch(name)}
            keys = sorted(filter(is_key, plain))
            for name in keys:  # a checkpoint without its key could not be continued
                self._send(name, name in there)
            sent = CheckpointCopies(self.folder, self.remote, self.outage, self._damaged)
            for unit in units if checkpoints else ():
                if sent.send(unit, there):
                    there.add(f"{unit}/{checkpoint.SUMS}")
            for name in sorted(plain.difference(keys)):
                self._send(name, name in there)
            if time.monotonic() - began > SILENCE_S:  # another machine may have become the owner, and have other files
                self._check_owner()
            for name in sorted(there - local - {OWNER}):
                if not UNIT.fullmatch(name):
                    self._remove(name)
            if checkpoints and units and self._damaged.isdisjoint(units):
                sent.remove_others(units, there)
            if part:
                self._send_new()

    def send(self, name: str) -> None:
        """Copy one file at once, without which another machine must not continue the run.

        Args:
            name: Name of the file in the run's folder.

        Raises:
            OwnershipLostError: Another process has become the owner of the copy.
            UserError: The file cannot be copied, although each request was tried again.
        """

        def attempt() -> None:
            self._check_owner()
            self._send(name, there=False)

        try:
            self.outage.copy(attempt, last=True)
        except OwnershipLostError:
            raise
        except UserError as error:
            raise UserError(f"{error}; the trial needs {name} there before it goes on: resume it later") from error

    def _send_new(self) -> None:
        """Send files of the run itself that the copy lacks: at first it does not have the run's place in MLflow."""
        for file in sorted(self.folder.iterdir()):
            if file.is_file() and not file.name.startswith(".") and file.name not in self._sent:
                if self.outage.request(partial(self.exists, file.name)):
                    self._sent[file.name] = (0, 0)  # it is not asked for again
                else:
                    self._send(file.name, there=False)

    def complete(self) -> None:
        """Copy all that the copy lacks, checkpoints too, once no other process writes them.

        Raises:
            OwnershipLostError: Another process has become the owner of the copy.
            UserError: The copy cannot be written, although each request was tried again.
        """
        self.outage.copy(lambda: self._push(("",), checkpoints=True), last=True)

    def _local(self, part: str) -> Iterator[str]:
        """Return the names of the files in a part, without those that are being written."""
        for folder, below, files in os.walk(self.folder / part):
            below[:] = [name for name in below if not name.startswith(".")]
            for name in files:
                if not name.startswith("."):
                    yield (Path(folder) / name).relative_to(self.folder).as_posix()

    def _send(self, name: str, there: bool) -> None:
        try:
            stat = (self.folder / name).stat()
            if there and self._sent.get(name) == (stat.st_size, stat.st_mtime_ns):
                return
            content = (self.folder / name).read_bytes()
        except FileNotFoundError:  # removed, or delivered, since it was listed
            return
        self._write(name, content)
        self._sent[name] = (stat.st_size, stat.st_mtime_ns)

    def _write(self, name: str, content: bytes) -> None:
        self.outage.request(lambda: (self.remote / name).write(content))

    def _remove(self, name: str) -> None:
        self.outage.request((self.remote / name).remove)

    def _owner(self) -> str:
        content = (self.remote / OWNER).read()
        return json.loads(content)["token"] if content else ""

    def _check_owner(self) -> None:
        content = self.outage.request((self.remote / OWNER).read)
        if not content:
            raise UserError(
                f"storage: {self.remote} has no {OWNER}: the copy was removed while this command works on it"
            )
        owner = json.loads(content)
        if owner["token"] != self.token:
            where = f"{owner['host']} (process {owner['pid']})"
            raise OwnershipLostError(
                f"storage: another command on {where} has continued the run {self.remote}: this one stops"
            )

    def record(self, before: Iterable[str] = ()) -> None:
        """Write the URI and the owner to the local folder. ``before`` is as in ``ownership.record``."""
        ownership.record(self.folder, self.remote.uri, self.token, before)
