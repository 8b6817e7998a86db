"""The checkpoints at the copy of a run: each is complete there, or has no list of its files.

An object store has no rename, so a checkpoint's ``SHA256SUMS`` is written after its other files and removed before
them: a reader sees a checkpoint with a list, which its digests confirm, or none. The last two are kept, and the older
one is removed only when the newer one is complete. A file that the checkpoint before the last has as well is copied by
the store itself, and never one of the last: a damaged file is then copied into every other checkpoint, and one of the
two that are kept is sound. A checkpoint that is damaged here is not sent, and takes the place of none: the copy keeps
what it has of it, and of the one before.
"""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from fedtext.errors import UserError
from fedtext.runtime.remote import Remote
from fedtext.state import checkpoint
from fedtext.state.digests import damage, listed
from fedtext.state.fetching import UNIT
from fedtext.state.outage import Outage


@dataclass(frozen=True)
class CheckpointCopies:
    """The checkpoints of a run at its copy.

    Attributes:
        folder: The local folder of the run.
        remote: Where its copy is.
        outage: What this process knows of failures of the store.
        damaged: The folders of checkpoints that are damaged here, of which a warning was given.
    """

    folder: Path
    remote: Remote
    outage: Outage
    damaged: set[str]

    def send(self, unit: str, there: Iterable[str]) -> bool:
        """Send a checkpoint that the copy lacks.

        Args:
            unit: The folder of the checkpoint.
            there: The names of the files at the URI.

        Returns:
            Whether it is at the copy; False if it is damaged, and not sent.

        Raises:
            UserError: The copy cannot be written.
        """
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
            if name in same:
                if self._copied(f"{unit}/{name}", same[name]):
                    continue
                if not self._is_sound(unit, names - {name}):  # the others have been read
                    return False
            self._write(f"{unit}/{name}", (folder / name).read_bytes())
        self._write(f"{unit}/{checkpoint.SUMS}", content)
        return True

    def remove_others(self, units: Iterable[str], there: Iterable[str]) -> None:
        """Remove the checkpoints that are no longer here, each after its list.

        Args:
            units: The folders of those that are here.
            there: The names of the files at the URI.

        Raises:
            UserError: The copy cannot be written.
        """
        for unit in sorted({name.rpartition("/")[0] for name in there if UNIT.fullmatch(name)} - set(units)):
            self._remove(f"{unit}/{checkpoint.SUMS}")
            self.outage.request((self.remote / unit).remove_folder)

    def _is_sound(self, unit: str, unread: Collection[str]) -> bool:
        """Return whether a checkpoint can be sent. If it is damaged, a warning says so once.

        Args:
            unit: The folder of the checkpoint.
            unread: Names of its files that are not sent from here, or have been found sound.
        """
        try:
            problem = damage(self.folder / unit, unread)
        except PermissionError as error:
            problem = f"the checkpoint {self.folder / unit} cannot be read: {error.filename} is another user's"
        if problem and unit not in self.damaged:
            logging.getLogger(__name__).warning("%s; it is not copied to %s", problem, self.remote)
        (self.damaged.add if problem else self.damaged.discard)(unit)
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

    def _write(self, name: str, content: bytes) -> None:
        self.outage.request(lambda: (self.remote / name).write(content))

    def _remove(self, name: str) -> None:
        self.outage.request((self.remote / name).remove)
