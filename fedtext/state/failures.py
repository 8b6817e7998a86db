"""Which clients failed in the rounds of a run that hides its clients, and goes on without those that fail.

A round that is repeated after an interruption draws the same noise, and sums of secure aggregation are exact. Were it
released again with other clients in its sum, the difference of both releases would be updates of single clients.
Therefore it is written down who failed before anything comes of a round. In a round that is repeated these clients are
left out, whether or not they would fail again, and no others may fail. A round with masks alone may have several
attempts, each with other clients: the failures of all of them are written down, so that the same one is opened again.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from fedtext.errors import UserError, writing
from fedtext.runtime import durable
from fedtext.state.noise_key import NoiseKey

FILE = "failures.json"
OTHERS = (
    "round {}: other clients failed in it than before the run was interrupted, and the difference of both sums would "
    "show their updates: start a new run with another seed"
)
AGAIN = "failed in this round before the run was interrupted"
KEPT = 10  # checkpoints: a run goes on after one of the last two, and its copy at a URI may be some behind


class Failures:
    """The failures of a run, round by round, as digests that do not show the clients without the run's key.

    There is a digest of each client that failed, under the round's number (``5``) and that of a later attempt at it
    (``5/2``). Files of earlier versions have one of all of a round together, which
    tells whether the same clients fail, and not who they are.

    Args:
        folder: The folder of the run's state.
        noise: The run's key. Failures under another key are of another run, whose noise was another.
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

    def earlier(self, round_: int, attempt: int, clients: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return which clients failed in a round when it was computed before; empty if it was not.

        Args:
            round_: Number of the round.
            attempt: Number of the attempt at it, from 1.
            clients: Ids of its clients.

        Returns:
            Ids of those that are to be left out before they train, and of those that are to train and fail again.
        """
        before = self.known.get(name := _name(round_, attempt))
        if not isinstance(before, list):
            return [], []
        there = set(before)
        left, trained = ([i for i in clients if self._of(name, i, kind) in there] for kind in (False, True))
        return left, trained

    def goes_on(self, round_: int, attempt: int) -> bool:
        """Return whether an attempt at a round was given up when it was computed before, and another one followed."""
        return _name(round_, attempt + 1) in self.known

    def check(self, round_: int, attempt: int, failed: Collection[int]) -> None:
        """Check that those who failed in an attempt at a round are those of before, if it is repeated.

        Args:
            round_: Number of the round.
            attempt: Number of the attempt, from 1.
            failed: Ids of the clients that failed.

        Raises:
            UserError: Others failed when the round was computed before.
        """
        before = self.known.get(_name(round_, attempt))
        if isinstance(before, str):  # of an earlier version
            same = before == self._digest(f"{round_}:{sorted(failed)}".encode())
        elif before is not None:
            left, trained = self.earlier(round_, attempt, failed)
            same = len(failed) == len(before) == len(left) + len(trained)
        else:
            same = True
        if not same:
            raise UserError(OTHERS.format(round_))

    def keep(self, round_: int, attempts: Sequence[Mapping[int, bool]]) -> None:
        """Write down who failed in a round, before anything of its last attempt is released.

        Args:
            round_: Number of the round.
            attempts: For each attempt the ids of the clients that failed, and whether that was by what their training
                led to (``Reply.trained``).

        Raises:
            UserError: The file cannot be written or copied.
        """
        before, found = self.known, dict[str, str | list[str]]()
        for attempt, failed in enumerate(attempts, 1):
            if (name := _name(round_, attempt)) not in before:  # sorted digests: their order shows nothing
                found[name] = sorted(self._of(name, client, trained) for client, trained in failed.items())
        if found:
            self._write(before | found)
        try:
            if self.send:
                self.send(FILE)
        except BaseException:
            if found:  # nothing of the attempt was released: it may be repeated with others
                self._write(before)
            raise

    def _write(self, known: dict[str, str | list[str]]) -> None:
        self.known = known
        with writing(self.file):
            durable.make_folder(self.file.parent)
            durable.write(self.file, json.dumps({"key": self.key, "rounds": known}))

    def forget(self, round_: int) -> None:
        """Forget rounds that no run repeats, now that a checkpoint of ``round_`` is saved."""
        self.saved.append(round_)
        if len(self.saved) == KEPT:
            self.known = {name: found for name, found in self.known.items() if _round(name) > self.saved[0]}

    def _of(self, name: str, client: int, trained: bool) -> str:
        return self._digest(f"{name}:{client}{':trained' * trained}".encode())

    def _digest(self, content: bytes) -> str:
        return hashlib.blake2b(content, key=self.noise.material, digest_size=8).hexdigest()


def _name(round_: int, attempt: int) -> str:
    """Return the name under which the failures of an attempt at a round are kept."""
    return f"{round_}/{attempt}" if attempt > 1 else str(round_)


def _round(name: str) -> int:
    return int(name.partition("/")[0])
