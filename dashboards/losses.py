"""What processes that died or hung cost each trial."""

from collections.abc import Sequence
from dataclasses import replace

from fedtext.records import RoundRecord


class Losses:
    """The restarts of trials, and the time that they cost."""

    def __init__(self) -> None:
        self._lost: dict[str, list[str]] = {}  # why a trial went back since its last record
        self._so_far: dict[str, tuple[int, float]] = {}  # restarts of each trial, and the seconds that they cost

    def add(self, case: str, why: str) -> None:
        """Note that a trial goes back to its last checkpoint."""
        self._lost.setdefault(case, []).append(why)

    def regained(self, case: str, records: Sequence[RoundRecord], record: RoundRecord) -> tuple[RoundRecord, str]:
        """Return a trial's record with its restarts and their cost, and a sentence if it went back just before.

        Args:
            case: The trial's case.
            records: Its records so far.
            record: The next one.
        """
        restarts, seconds, sentence = *self._so_far.get(case, (0, 0.0)), ""
        if whys := self._lost.pop(case, []):
            before = next((one.time for one in reversed(records) if one.round < record.round), None)
            sentence = f"went back to its last checkpoint, {'; '.join(whys)}"
            if before is not None:
                took = max(0.0, record.time - before - record.metrics["round_seconds"])
                sentence += f": round {record.round} was complete {took:.1f} s later"
                seconds += took
            restarts += len(whys)
            self._so_far[case] = restarts, seconds
        if not restarts:
            return record, ""
        cost = {"restarts": float(restarts), "seconds_lost": seconds}
        return replace(record, metrics=record.metrics | cost), sentence
