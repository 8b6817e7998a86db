"""Trials that wait for a share of the cluster: whether the next one gets it, and what is said meanwhile."""

import time
from collections.abc import Callable, Sequence

from ray.tune.experiment import Trial

from actors.waiting import Use
from dashboards.progress import Progress
from dashboards.trial import one_line

LOOK_S = 2.0  # between two looks at the cluster
PATIENCE_S, AGAIN_S = 5.0, 30.0  # until it is first looked at why no trial can start, and between two such looks
LONGEST_S = 960.0  # between two messages of the same words


class Reminder:
    """When a message is due: soon after its words change, and the same ones after a time that doubles each time."""

    def __init__(self) -> None:
        self.told, self.gap = "", AGAIN_S
        self.last = self.at = 0.0  # the last message, and the next one of the same words

    def due(self, sentence: str) -> bool:
        """Return whether to print a message now. If so, it counts as printed."""
        now = time.monotonic()
        if self.told and now < (self.at if sentence == self.told else self.last + AGAIN_S):
            return False
        self.gap = min(2 * self.gap, LONGEST_S) if sentence == self.told else AGAIN_S
        self.told, self.last, self.at = sentence, now, now + self.gap
        return True


class Pending:
    """The trials that have not started."""

    def __init__(
        self,
        progress: Progress,
        waiting: Callable[[str], str] | None,
        in_use: Callable[[], Use] | None,
        fits: Callable[[str], bool] | None,
    ) -> None:
        """Create it. The arguments are those of ``TrialCallback``."""
        self.progress, self.in_use = progress, in_use
        self.waiting, self.fits = waiting or (lambda case: ""), fits or (lambda case: True)
        self.look_at = 0.0  # time of the next look at the cluster
        self.ask_at: float | None = None  # time of the next look at why no trial can start; None: some trial runs
        self.reminder = Reminder()

    def look(self, trials: Sequence[Trial]) -> set[str]:
        """Tell the display now and then how the cluster is used, and that no trial runs since the next one waits.

        Args:
            trials: All trials so far.

        Returns:
            The cases of those that have not started, if none runs and the next one does not fit on the nodes there are.
        """
        pending = [trial for trial in trials if trial.status == Trial.PENDING]
        self._show(pending)
        if not pending or any(trial.status == Trial.RUNNING for trial in trials):
            self.ask_at, self.reminder = None, Reminder()
        elif self.ask_at is None:
            self.ask_at = time.monotonic() + PATIENCE_S
        elif time.monotonic() >= self.ask_at:
            self.ask_at = time.monotonic() + AGAIN_S
            if not self.fits(pending[0].config["case"]):
                return {trial.config["case"] for trial in pending}
            sentence = self.waiting(pending[0].config["case"])
            if sentence and self.reminder.due(sentence):
                self.progress.wait(one_line(sentence))
        return set()

    def _show(self, pending: Sequence[Trial]) -> None:
        """Tell the display how the cluster is used, and whether the next trial waits for a share of it."""
        if self.in_use is None or not self.progress.shows_cluster or time.monotonic() < self.look_at:
            return
        self.look_at = time.monotonic() + LOOK_S
        why = self.waiting(pending[0].config["case"]) if pending else ""
        self.progress.look(self.in_use(), one_line(why))
