"""A copy of a run's folder at a URI, from which the run continues on any machine.

The run works in its local folder. What has been completed there is copied: a checkpoint after each round, and small
files whenever a trial begins or ends. An object store has no rename, so a checkpoint's ``SHA256SUMS`` is written after
its other files and removed before them: a reader sees a checkpoint with a list, which its digests confirm, or none.
The last two are kept, and the older one is removed only when the newer one is complete.

``owner.json`` names the process that works on the run. A machine that was believed dead, and still runs, finds another
owner there at its next copy and stops; what both wrote until then has the same bits.
"""

import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedtext.errors import UserError
from fedtext.runtime.remote import Remote
from fedtext.state import checkpoint, noise_key

OWNER = "owner.json"  # at the URI
STATE = ".copy.json"  # in the local folder: the URI, and the owner as this machine last wrote it
_UNIT = re.compile(r"(?:(.*)/)?(round-[0-9]+)/([^/]+)")


@dataclass(frozen=True)
class Copy:
    """The copy of one run.

    Attributes:
        folder: The local folder of the run.
        remote: Where its copy is.
        token: Identifies the owner that this process works for; empty: none yet.
    """

    folder: Path
    remote: Remote
    token: str = ""
    _sent: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(folder: Path) -> "Copy | None":
        """Return the copy that a local folder is recorded to have; None if it has none."""
        if not (folder / STATE).is_file():
            return None
        kept = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return Copy(folder, Remote(kept["uri"], "storage"), kept["token"])

    def exists(self, name: str) -> bool:
        """Whether the copy has a file of this name."""
        return (self.remote / name).info() is not None

    def pull(self) -> None:
        """Bring the local folder up to date, unless this machine was the last one that worked on the run.

        Checkpoints that the copy lacks stay: the results of a round do not depend on who computed it.

        Raises:
            UserError: The copy cannot be read, or the local folder has another run.
        """
        before = Copy.of(self.folder)
        if before is not None and before.remote.uri != self.remote.uri:
            raise UserError(
                f"storage: {self.folder} belongs to {before.remote}, not to {self.remote}: move it away first"
            )
        if before is None and any(self.folder.glob("*")):
            raise UserError(
                f"storage: {self.folder} has another run of the name {self.folder.name}: move it away first"
            )
        if before is not None and before.token == self._owner():
            return
        self._record()
        there = self.remote.files()
        for file in self.folder.glob("*/outcome.json"):
            if file.relative_to(self.folder).as_posix() not in there:
                file.unlink()  # its trial has been continued elsewhere
        units: dict[str, list[str]] = {}
        for name in there:
            if found := _UNIT.fullmatch(name):
                units.setdefault(name.rpartition("/")[0], []).append(found[3])
            elif name != OWNER:
                (self.remote / name).fetch(self.folder / name, _mode(name))
        for unit, names in units.items():
            self._fetch_checkpoint(unit, names)
        self._record()

    def check_writable(self) -> None:
        """Raise UserError if files cannot be written to the copy."""
        probe = self.remote / f".probe-{secrets.token_hex(4)}"
        probe.write(b"")
        probe.remove()

    def take(self) -> "Copy":
        """Become the owner of the copy, and return it."""
        taken = replace(self, token=secrets.token_hex(16))
        owner = {"token": taken.token, "host": socket.gethostname(), "pid": os.getpid()}
        (self.remote / OWNER).write(json.dumps(owner).encode())
        return taken

    def push(self, *parts: str, checkpoints: bool = False) -> None:
        """Copy what has changed.

        Args:
            parts: Folders of trials with everything in them; none: all of the run.
            checkpoints: Whether to copy checkpoints: only the process that writes them can.

        Raises:
            UserError: The copy cannot be written, or another process has become its owner.
        """
        self._check_owner()
        self._record()
        for part in parts or ("",):
            base = self.remote / part if part else self.remote
            prefix = f"{part}/" if part else ""
            there = {prefix + name for name in base.files()}
            local = set(self._local(part))
            units = sorted({name.rpartition("/")[0] for name in local if _UNIT.fullmatch(name)})
            for unit in units if checkpoints else ():
                self._send_checkpoint(unit, there)
            plain = {name for name in local if not _UNIT.fullmatch(name)}
            for name in sorted(plain):
                self._send(name, name in there)
            for name in sorted(there - local - {OWNER}):
                if not _UNIT.fullmatch(name):
                    (self.remote / name).remove()
            if checkpoints and units:
                self._remove_checkpoints(units, there)

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
        (self.remote / name).write(content)
        self._sent[name] = (stat.st_size, stat.st_mtime_ns)

    def _send_checkpoint(self, unit: str, there: Iterable[str]) -> None:
        folder, sums = self.folder / unit, self.remote / f"{unit}/{checkpoint.SUMS}"
        listed = (folder / checkpoint.SUMS).read_bytes()
        if sums.read() == listed:
            return
        sums.remove()
        names = {file.name for file in folder.iterdir()}
        for name in there:
            if name.startswith(f"{unit}/") and name.rpartition("/")[2] not in names:
                (self.remote / name).remove()
        for name in sorted(names - {checkpoint.SUMS}):
            (self.remote / f"{unit}/{name}").write((folder / name).read_bytes())
        sums.write(listed)

    def _remove_checkpoints(self, units: list[str], there: Iterable[str]) -> None:
        """Remove those that are no longer here, each after its list."""
        gone = [name for name in there if _UNIT.fullmatch(name) and name.rpartition("/")[0] not in units]
        for name in sorted(gone, key=lambda name: (not name.endswith(f"/{checkpoint.SUMS}"), name)):
            (self.remote / name).remove()

    def _fetch_checkpoint(self, unit: str, names: list[str]) -> None:
        target = self.folder / unit
        listed = (self.remote / f"{unit}/{checkpoint.SUMS}").read()
        kept = target / checkpoint.SUMS
        if listed is None or (kept.is_file() and kept.read_bytes() == listed):
            return
        draft = target.with_name(f".draft-{target.name}-{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        for name in names:
            (self.remote / f"{unit}/{name}").fetch(draft / name, _mode(name))
        shutil.rmtree(target, ignore_errors=True)
        os.replace(draft, target)

    def _owner(self) -> str:
        content = (self.remote / OWNER).read()
        return json.loads(content)["token"] if content else ""

    def _check_owner(self) -> None:
        content = (self.remote / OWNER).read()
        owner = json.loads(content) if content else {"token": ""}
        if owner["token"] != self.token:
            where = f" on {owner['host']} (process {owner['pid']})" if owner["token"] else ""
            raise UserError(f"storage: another command{where} has continued the run {self.remote}: this one stops")

    def _record(self) -> None:
        """Write the URI and the owner to the local folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"{STATE}.draft-{os.getpid()}"
        draft.write_text(json.dumps({"uri": self.remote.uri, "token": self.token}), encoding="utf-8")
        os.replace(draft, self.folder / STATE)


def _mode(name: str) -> int:
    secret = name.rpartition("/")[2] == noise_key.FILE or name.rpartition("/")[2].startswith(checkpoint.EXTRA)
    return 0o600 if secret else 0o666
