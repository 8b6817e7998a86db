"""A copy of a run's folder at a URI, from which the run continues on any machine.

The run works in its local folder. What has been completed there is copied: a checkpoint after each round, and small
files whenever a trial begins or ends. An object store has no rename, so a checkpoint's ``SHA256SUMS`` is written after
its other files and removed before them: a reader sees a checkpoint with a list, which its digests confirm, or none.
The last two are kept, and the older one is removed only when the newer one is complete. A file that the checkpoint
before the last has as well is copied by the store itself, and never one of the last: a damaged file is then copied into
every other checkpoint, and one of the two that are kept is sound. A checkpoint that is damaged here is not sent, and
takes the place of none: the copy keeps what it has of it, and of the one before.

A request that fails is tried again, a few times. If that fails too the copy stays as it is, and what it lacks is copied
later: `Outage` says when. Files whose names begin with a dot belong to one machine: drafts, locks, ownership.

``owner.json`` names the process that works on the run. A machine that was believed dead, and still runs, finds another
owner there at its next copy and stops; what both wrote until then has the same bits.
"""

import hashlib
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fedtext.errors import OwnershipLostError, UserError
from fedtext.runtime.remote import Remote
from fedtext.state import checkpoint, ownership
from fedtext.state.digests import damage, listed
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
            for unit in units if checkpoints else ():
                if self._send_checkpoint(unit, there):
                    there.add(f"{unit}/{checkpoint.SUMS}")
            for name in sorted(plain.difference(keys)):
                self._send(name, name in there)
            if time.monotonic() - began > SILENCE_S:  # another machine may have become the owner, and have other files
                self._check_owner()
            for name in sorted(there - local - {OWNER}):
                if not UNIT.fullmatch(name):
                    self._remove(name)
            if checkpoints and units and self._damaged.isdisjoint(units):
                self._remove_checkpoints(units, there)
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

    def _send_checkpoint(self, unit: str, there: Iterable[str]) -> bool:
        """Send a checkpoint that the copy lacks. Returns False if it is damaged, and not sent."""
        folder, sums = self.folder / unit, self.remote / f"{unit}/{checkpoint.SUMS}"
        try:
            content = (folder / checkpoint.SUMS).read_bytes()
        except OSError:
            content = b""  # the list of none
        if self.outage.request(sums.read) == content:
            return True
        same = self._same(unit, content, there)
        if not self._is_sound(unit, same):
            return False
        self._remove(f"{unit}/{checkpoint.SUMS}")
        names = {file.name for file in folder.iterdir()}
        for name in there:
            if name.startswith(f"{unit}/") and name.rpartition("/")[2] not in names:
                self._remove(name)
        for name in sorted(names - {checkpoint.SUMS}):
            if name in same and self._copied(f"{unit}/{name}", same[name]):
                continue
            data = (folder / name).read_bytes()
            if name in same and hashlib.sha256(data).hexdigest() != listed(content)[name]:  # not read so far
                self._is_sound(unit)  # says what is wrong with it
                return False
            self._write(f"{unit}/{name}", data)
        self._write(f"{unit}/{checkpoint.SUMS}", content)
        return True

    def _is_sound(self, unit: str, unread: Collection[str] = ()) -> bool:
        """Return whether a checkpoint can be sent. If it is damaged, a warning says so once.

        Args:
            unit: The folder of the checkpoint.
            unread: Names of its files that are not sent from here.
        """
        try:
            problem = damage(self.folder / unit, unread)
        except PermissionError as error:
            problem = f"the checkpoint {self.folder / unit} cannot be read: {error.filename} is another user's"
        if problem and unit not in self._damaged:
            logging.getLogger(__name__).warning("%s; it is not copied to %s", problem, self.remote)
        (self._damaged.add if problem else self._damaged.discard)(unit)
        return not problem

    def _same(self, unit: str, sums: bytes, there: Iterable[str]) -> dict[str, str]:
        """Return the files of a checkpoint that the one before the last at the URI has: where they are there, by name.

        Args:
            unit: The folder of the checkpoint.
            sums: The content of its list.
            there: The names of the files at the URI.
        """
        beside = unit.rpartition("/")[0]
        lists = [name for name in there if name.startswith(f"{beside}/") and name.endswith(f"/{checkpoint.SUMS}")]
        earlier = sorted(other for name in lists if (other := name.rpartition("/")[0]) < unit)
        if len(earlier) < checkpoint.KEPT:
            return {}
        other, now = earlier[-checkpoint.KEPT], listed(sums)
        before = listed(self.outage.request((self.remote / f"{other}/{checkpoint.SUMS}").read) or b"")
        return {name: f"{other}/{name}" for name, digest in now.items() if before.get(name) == digest}

    def _copied(self, name: str, source: str) -> bool:
        """Have the store copy a file. Returns False if it does not, and the file is to be sent."""
        try:
            (self.remote / name).copy(self.remote / source)
        except UserError:
            return False
        return True

    def _remove_checkpoints(self, units: list[str], there: Iterable[str]) -> None:
        """Remove those that are no longer here, each after its list."""
        for unit in sorted({name.rpartition("/")[0] for name in there if UNIT.fullmatch(name)} - set(units)):
            self._remove(f"{unit}/{checkpoint.SUMS}")
            self.outage.request((self.remote / unit).remove_folder)

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
