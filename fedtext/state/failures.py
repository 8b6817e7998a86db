"""Which clients failed in the rounds of a run that hides its clients by noise, and goes on without those that fail.

A round that is repeated after an interruption draws the same noise. Were it released again with other clients in its
sum, the difference of both releases would be updates of single clients, without noise. Therefore it is written down who
failed before anything comes of a round, and a round that is repeated has to have the same failures.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from fedtext.errors import UserError, writing
from fedtext.runtime import durable
from fedtext.state.noise_key import NoiseKey

FILE = "failures.json"
KEPT = 10  # checkpoints: a run goes on after one of the last two, and its copy at a URI may be some behind


class Failures:
    """The failures of a run, round by round, as digests that do not show the clients without the run's key.

    Args:
        folder: The folder of the run's state.
        noise: The run's key. Failures under another key are of no matter: its noise was another.
        send: Copies a file of the folder, by its name, to where another machine may continue the run; None: nowhere.

    Raises:
        UserError: The file is damaged.
    """

    def __init__(self, folder: Path, noise: NoiseKey, send: Callable[[str], None] | None = None) -> None:
        self.file, self.noise, self.send = folder / FILE, noise, send
        self.key, self.known = self._digest(b"failures"), dict[str, str]()
        self.saved: deque[int] = deque(maxlen=KEPT)
        try:
            if self.file.exists() and (content := json.loads(self.file.read_bytes()))["key"] == self.key:
                self.known = dict(content["rounds"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.file} is damaged: put it back as it was, or start a new run") from error

    def check(self, round_: int, failed: Iterable[int]) -> None:
        """Write down who failed in a round, or check that they are those of before if it is repeated.

        Args:
            round_: Number of the round.
            failed: Ids of the clients that failed.

        Raises:
            UserError: Others failed when the round was computed before, or the file cannot be written or copied.
        """
        found, before = self._digest(f"{round_}:{sorted(failed)}".encode()), self.known.get(str(round_))
        if before not in (None, found):
            raise UserError(
                f"round {round_}: other clients failed in it than before the run was interrupted, and with the same "
                "noise the difference would show their updates: start a new run"
            )
        if before is None:
            self._write(self.known | {str(round_): found})
        try:
            if self.send:
                self.send(FILE)
        except BaseException:
            if before is None:  # nothing of the round was released: it may be repeated with others
                self._write({name: known for name, known in self.known.items() if name != str(round_)})
            raise

    def _write(self, known: dict[str, str]) -> None:
        self.known = known
        with writing(self.file):
            durable.make_folder(self.file.parent)
            durable.write(self.file, json.dumps({"key": self.key, "rounds": known}))

    def forget(self, round_: int) -> None:
        """Forget rounds that no run repeats, now that a checkpoint of ``round_`` is saved."""
        self.saved.append(round_)
        if len(self.saved) == KEPT:
            self.known = {name: found for name, found in self.known.items() if int(name) > self.saved[0]}

    def _digest(self, content: bytes) -> str:
        return hashlib.blake2b(content, key=self.noise.material, digest_size=8).hexdigest()
