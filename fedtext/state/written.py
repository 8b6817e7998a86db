"""A checkpoint that this process has written, with which later ones share what has not changed."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from fedtext.state import segments

MOST_FILES = 32  # with private states, before all are written anew


@dataclass
class Written:
    """A checkpoint that this process has written, with which a later one shares files.

    Attributes:
        folder: Its folder.
        digests: The digest of each file, by name.
        clients: For each client the name of the file with its private state, and the bytes of that state.
        records: Number of its records.
        changed: The clients whose private states have changed since.
    """

    folder: Path
    digests: dict[str, str]
    clients: dict[int, tuple[str, int]]
    records: int
    changed: set[int] = field(default_factory=set)

    def is_there(self) -> bool:
        """Whether it has all of its files."""
        return all((self.folder / name).is_file() for name in self.digests)

    def is_worn(self) -> bool:
        """Whether it has too many files with private states, or more superseded states than others."""
        files = {name for name, _ in self.clients.values()}
        there = sum((self.folder / name).stat().st_size for name in files)
        return len(files) >= MOST_FILES or there > 2 * sum(size for _, size in self.clients.values()) + 65_536

    def lines(self, first: int, last: int) -> bytes | None:
        """Return those of the records of a block that it has, as lines; None if a file is missing or has changed.

        Args:
            first, last: The rounds of the block, which a checkpoint of the same or more records has.
        """
        there = [segments.records_file(*one) for one in segments.blocks(self.records) if first <= one[0] <= last]
        try:
            contents = {name: (self.folder / name).read_bytes() for name in there}
        except OSError:
            return None
        sound = all(hashlib.sha256(content).hexdigest() == self.digests[name] for name, content in contents.items())
        return b"".join(contents.values()) if sound else None
