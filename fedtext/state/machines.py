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
    "from round {} on clients are trained on another machine ({}) than before ({}): results differ by rounding from "
    "those of an undisturbed run, and training that is unstable amplifies it"
)
NOISY = (
    "; of a round that was completed before the run was interrupted, and is repeated now, there are two results under "
    'the same noise (docs/explanation/privacy.md, "A round that is repeated")'
)


def machines_of(folder: Path) -> list[str]:
    """Return the names of the machines in a folder of a run's state; empty if they are not known."""
    return _read(folder / FILE)[1]


def _read(file: Path) -> tuple[str, list[str]]:
    """Return the fingerprint and the machines in a file, and nothing of one that is not there or is damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(file.read_bytes())
        return str(content["fingerprint"]), [str(name) for name in content["machines"]]
    return "", []


class Machines:
    """The machines of a run, by name (``runtime.machine``), in a file beside its checkpoints.

    Args:
        folder: The folder of the run's state; None: nothing is written.
        fingerprint: Identifies the run. What another one has left in the folder is replaced.
        noisy: Whether noise hides clients.
    """

    def __init__(self, folder: Path | None = None, fingerprint: str = "", noisy: bool = False) -> None:
        self.file, self.fingerprint, self.noisy = folder and folder / FILE, fingerprint, noisy
        before, self.known = _read(self.file) if self.file else ("", [])
        if before != fingerprint:
            self.known = []

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
        before, new = list(self.known), sorted(set(names).difference(self.known))
        if not new:
            return ""
        self.known += new
        if self.file:
            content = json.dumps({"fingerprint": self.fingerprint, "machines": self.known}, indent=1)
            with writing(self.file):
                durable.make_folder(self.file.parent)
                durable.write(self.file, content)
        if before:
            return OTHERS.format(round_, "; ".join(new), "; ".join(before)) + NOISY * self.noisy
        return MIXED.format("; ".join(new)) if len(new) > 1 else ""
