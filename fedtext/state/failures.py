"""Which clients failed in the rounds of a run that hides its clients by noise, and goes on without those that fail.

A round that is repeated after an interruption draws the same noise. Were it released again with other clients in its
sum, the difference of both releases would be updates of single clients, without noise. Therefore it is written down who
failed before anything comes of a round. In a round that is repeated these clients are left out, whether or not they
would fail again, and no others may fail.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from fedtext.errors import UserError, writing
from fedtext.runtime import durable
from fedtext.state.noise_key import NoiseKey

FILE = "failures.json"
OTHERS = (
    "round {}: other clients failed in it than before the run was interrupted, and with the same noise the difference "
    "would show their updates: start a new run"
)
AGAIN = "failed in this round before the run was interrupted"
KEPT = 10  # checkpoints: a run goes on after one of the last two, and its copy at a URI may be some behind


class Failures:
    """The failures of a run, round by round, as digests that do not show the clients without the run's key.

    There is a digest of each client that failed. Files of earlier versions have one of all of a round together, which
    tells whether the same clients fail, and not who they are.

    Args:
        folder: The folder of the run's state.
        noise: The run's key. Failures under another key are of no matter: its noise was another.
        send: Copies a file of the folder, by its name, to where another machine may continue the run; None: nowhere.

    Raises:
        UserError: The file is damaged.
    """

    def __init__(self, folder: Path, noise: NoiseKey, send: Callable[[str], None] | None = None) -> None:
        self.file, self.noise, self.send = folder / FILE, noise, send
        self.key, self.known = self._digest(b"failures"), dict[str, str | list[str]]()
        self.saved: deque[int] = deque(maxlen=KEPT)
        try:
            if self.file.exists() and (content := json.loads(self.file.read_bytes()))["key"] == self.key:
                self.known = dict(content["rounds"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.file} is damaged: put it back as it was, or start a new run") from error

    def earlier(self, round_: int, clients: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return which clients failed in a round when it was computed before; empty if it was not.

        Args:
            round_: Number of the round.
            clients: Ids of its clients.

        Returns:
            Ids of those that are to be left out before they train, and of those that are to train and fail again.
        """
        before = self.known.get(str(round_))
        if not isinstance(before, list):
            return [], []
        there = set(before)
        left, trained = ([i for i in clients if self._of(round_, i, kind) in there] for kind in (False, True))
        return left, trained

    def check(self, round_: int, failed: Iterable[int], trained: Collection[int] = ()) -> None:
        """Write down who failed in a round, or check that they are those of before if it is repeated.

        Args:
            round_: Number of the round.
            failed: Ids of the clients that failed.
            trained: Ids of those of them that failed by what their training led to (``Reply.trained``).

        Raises:
            UserError: Others failed when the round was computed before, or the file cannot be written or copied.
        """
        failed, before = sorted(failed), self.known.get(str(round_))
        if before is not None and not self._same(round_, failed, before):
            raise UserError(OTHERS.format(round_))
        if before is None:
            found = [self._of(round_, client, client in trained) for client in failed]
            self._write(self.known | {str(round_): sorted(found)})  # whose order shows nothing
        try:
            if self.send:
                self.send(FILE)
        except BaseException:
            if before is None:  # nothing of the round was released: it may be repeated with others
                self._write({name: known for name, known in self.known.items() if name != str(round_)})
            raise

    def _same(self, round_: int, failed: Sequence[int], before: str | list[str]) -> bool:
        """Return whether the clients that failed are those of before."""
        if isinstance(before, str):  # of an earlier version
            return before == self._digest(f"{round_}:{failed}".encode())
        left, trained = self.earlier(round_, failed)
        return len(failed) == len(before) == len(left) + len(trained)

    def _write(self, known: dict[str, str | list[str]]) -> None:
        self.known = known
        with writing(self.file):
            durable.make_folder(self.file.parent)
            durable.write(self.file, json.dumps({"key": self.key, "rounds": known}))

    def forget(self, round_: int) -> None:
        """Forget rounds that no run repeats, now that a checkpoint of ``round_`` is saved."""
        self.saved.append(round_)
        if len(self.saved) == KEPT:
            self.known = {name: found for name, found in self.known.items() if int(name) > self.saved[0]}

    def _of(self, round_: int, client: int, trained: bool) -> str:
        return self._digest(f"{round_}:{client}{':trained' * trained}".encode())

    def _digest(self, content: bytes) -> str:
        return hashlib.blake2b(content, key=self.noise.material, digest_size=8).hexdigest()
