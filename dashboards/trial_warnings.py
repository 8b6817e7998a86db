"""Warnings about trials, each of which is printed once, or when what it is about has changed."""

from collections.abc import Mapping
from typing import Any

from dashboards.trial import Case, say, title

WHOLE = "all of its client actors have a place again"


class TrialWarnings:
    """The warnings of a sweep.

    Args:
        cases: Its cases by id; more may be added.

    Attributes:
        unused_gpus: A sentence for each case that reserves GPUs it does not use.
    """

    def __init__(self, cases: Mapping[str, Case]) -> None:
        self.cases = cases
        self.unused_gpus: dict[str, str] = {}
        self._short: dict[str, str] = {}  # what was said last of actors of a case that have no place
        self._changed = set[str]()  # what has been said of machines

    def say(self, case_id: str, sentence: str) -> None:
        """Print a sentence about a trial."""
        say(f"warning: {title(self.cases[case_id])}: {sentence}")

    def losing(self, case_id: str, what: str, reached: int) -> None:
        """Print that a trial has lost a process.

        Args:
            case_id: The case.
            what: The process, and why it was lost.
            reached: The round of its last checkpoint; 0: it has none.
        """
        self.say(case_id, f"lost {what}: it {f'goes back to round {reached}' if reached else 'begins again'}")

    def displaced(self, case_id: str, sentence: str) -> None:
        """Print that a trial has no place. It is planned again, perhaps with fewer actors."""
        self._short.pop(case_id, None)
        self.say(case_id, f"{sentence}: it goes on when there is a place")

    def of_round(self, case_id: str, result: Mapping[str, Any]) -> None:
        """Print what a round's result says of GPUs, copies, machines and actors that has not been said.

        Args:
            case_id: The case.
            result: The result of Ray Tune.
        """
        if (unused := result.get("unused_gpus")) and case_id not in self.unused_gpus:
            self.unused_gpus[case_id] = unused
            self.say(case_id, unused)
        if uncopied := result.get("uncopied"):
            self.say(case_id, uncopied)
        if (changed := result.get("changed")) and changed not in self._changed:
            self._changed.add(changed)
            once = "; said once for all trials: the tag machines of each names its own" if len(self.cases) > 1 else ""
            self.say(case_id, f"{changed}{once}")
        if (short := result.get("short", "")) != self._short.get(case_id, ""):
            self._short[case_id] = short
            self.say(case_id, short or WHOLE)
