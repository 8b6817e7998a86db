"""The cost of processes that died or hung, for each trial."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dashboards.trial import one_line
from fedtext.records import RoundRecord

TOLD = 10  # sentences that are kept of a trial: the last ones


@dataclass(frozen=True)
class Lost:
    """The losses of a trial until now, in all commands that worked on it.

    Attributes:
        restarts: Times that it has gone back to its last checkpoint.
        seconds: Wall time that this has cost.
        sentences: What was said of the last of them.
    """

    restarts: int = 0
    seconds: float = 0.0
    sentences: tuple[str, ...] = ()


class Losses:
    """The restarts of trials, and the time that they cost."""

    def __init__(
        self, read: Callable[[str], Lost] = lambda case: Lost(), write: Callable[[str, Lost], None] | None = None
    ) -> None:
        """Create it.

        Args:
            read: Returns what a case had lost when this command began.
            write: Keeps what a case has lost, for a later command.
        """
        self._read, self._write = read, write
        self._unwritten: set[str] = set()
        self._whys: dict[str, list[str]] = {}  # why a trial went back since its last record
        self._reached: dict[str, int] = {}  # the round that it went back to; 0: its beginning
        self._so_far: dict[str, Lost] = {}

    def of(self, case: str) -> Lost:
        """Return what a trial has lost until now."""
        if case not in self._so_far:
            self._so_far[case] = self._read(case)
        return self._so_far[case]

    def add(self, case: str, why: str, reached: int) -> None:
        """Note that a trial goes back to its last checkpoint.

        Args:
            case: The trial's case.
            why: The cause.
            reached: The round of its last checkpoint; 0: it has none, and begins again.
        """
        self._whys.setdefault(case, []).append(why)
        self._reached[case] = reached

    def regained(self, case: str, records: Sequence[RoundRecord], record: RoundRecord) -> tuple[RoundRecord, str]:
        """Return a trial's record with its restarts and their cost, and a sentence if it went back just before.

        Args:
            case: The trial's case.
            records: Its records so far.
            record: The next one.
        """
        lost, sentence = self.of(case), ""
        if whys := self._whys.pop(case, []):
            before = next((one.time for one in reversed(records) if one.round < record.round), None)
            begun = self._reached.pop(case)
            what = "went back to its last checkpoint" if begun else "began again, without a checkpoint"
            sentence, took = one_line(f"{what}, {'; '.join(whys)}"), 0.0
            if before is not None:
                took = max(0.0, record.time - before - record.metrics["round_seconds"])
                sentence += f": round {record.round} was complete {took:.1f} s later"
            restarts, seconds = lost.restarts + len(whys), lost.seconds + took
            if lost.restarts:
                sentence += f"; until now {restarts} restarts have cost {seconds:.1f} s"
            self._so_far[case] = lost = Lost(restarts, seconds, (*lost.sentences, sentence)[-TOLD:])
            self._unwritten.add(case)
        if not lost.restarts:
            return record, ""
        cost = {"restarts": float(lost.restarts), "seconds_lost": lost.seconds}
        return replace(record, metrics=record.metrics | cost), sentence

    def keep(self, case: str) -> None:
        """Write what a trial has lost, if that has changed."""
        if case in self._unwritten and self._write:
            self._write(case, self.of(case))
        self._unwritten.discard(case)
