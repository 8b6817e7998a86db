"""The machines on which the clients of a run have been trained. Where they differ, bits depend on them."""

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from fedtext.errors import writing
from fedtext.runtime import durable

FILE = "machines.json"
MIXED = "clients are trained on different machines ({}): the last digits of results depend on which of them train where"
OTHERS = (
    "from round {} on clients are trained on other machines ({}) than before ({}): results differ by rounding from "
    "those of an undisturbed run, and training that is unstable amplifies it"
)
NOISY = (
    "; a round that was completed, and is repeated after an interruption, may have two results under the same noise "
    '(docs/explanation/privacy.md, "A round that is repeated")'
)


def machines_of(folder: Path) -> list[str]:
    """Return the names of the machines in a folder of a run's state; empty if they are not known."""
    return _read(folder / FILE)[1]


def _read(file: Path) -> tuple[str, list[str], list[str], str]:
    """Return the fingerprint in a file, all machines, the last ones, and the sentence on them that may not have been
    said; nothing if it is not there or is damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(file.read_bytes())
        known, last = ([str(name) for name in content[key]] for key in ("machines", "last"))
        return str(content["fingerprint"]), known, last, str(content["unsaid"])
    return "", [], [], ""


class Machines:
    """The machines of a run, by name (``state.machine``), in a file beside its checkpoints.

    Args:
        folder: The folder of the run's state; None: nothing is written.
        fingerprint: Identifies the run. What another one has left in the folder is replaced.
        noisy: Whether noise hides clients.

    Attributes:
        known: Names of all machines on which clients have been trained.
    """

    def __init__(self, folder: Path | None = None, fingerprint: str = "", noisy: bool = False) -> None:
        self.file, self.fingerprint, self.noisy = folder and folder / FILE, fingerprint, noisy
        before, self.known, self._last, self._unsaid = _read(self.file) if self.file else ("", [], [], "")
        if before != fingerprint:
            self.known, self._last, self._unsaid = [], [], ""
        self._begun = False  # whether this process has trained a round

    def follow(self, run: Path, *others: Path) -> None:
        """Take over the machines of the run in a folder, which goes on in this one, and those known of others.

        Args:
            run: The folder of its state.
            others: Folders of other states.
        """
        _, known, self._last, _ = _read(run / FILE)
        self.known = list(dict.fromkeys([*known, *(name for other in others for name in machines_of(other))]))
        self._write()

    def train(self, round_: int, names: Collection[str]) -> str:
        """Note the machines on which the clients of a round are trained, before anything comes of it.

        Args:
            round_: Number of the round.
            names: Names of the machines.

        Returns:
            A sentence if results have begun to depend on the machines; else empty.

        Raises:
            UserError: The file cannot be written.
        """
        before, now, begun = self._last, sorted(set(names)), self._begun
        self._begun = True
        if now == before:
            if self._unsaid and begun:  # it was said with the round before
                self._unsaid = ""
                self._write()
            return self._unsaid
        self._last = now
        self.known += [name for name in now if name not in self.known]
        self._unsaid = ""
        if before:
            self._unsaid = OTHERS.format(round_, "; ".join(now), "; ".join(before)) + NOISY * self.noisy
        elif len(now) > 1:
            self._unsaid = MIXED.format("; ".join(now)) + NOISY * self.noisy
        self._write()
        return self._unsaid

    def _write(self) -> None:
        """Write the file, if there is a folder. Raises UserError if it cannot be written."""
        if self.file:
            content = {"fingerprint": self.fingerprint, "machines": self.known, "last": self._last}
            content |= {"unsaid": self._unsaid}
            with writing(self.file):
                durable.make_folder(self.file.parent)
                durable.write(self.file, json.dumps(content, indent=1))
