"""The callback of Ray Tune: passes events of trials on to MLflow and to the progress display."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from actors.metrics import TrialMetrics
from actors.waiting import Use
from dashboards.failure import failure_of, raised, server_died
from dashboards.hooks import never_raises
from dashboards.losses import Losses
from dashboards.pending import Pending
from dashboards.progress import Progress
from dashboards.recorder import Recorder
from dashboards.servers import Servers
from dashboards.trial import About, Case, Ended, Outcome, RunStatus, merged, one_line, say
from dashboards.trial_warnings import TrialWarnings
from fedtext.errors import OwnershipLostError, UserError
from fedtext.records import RoundRecord

if TYPE_CHECKING:
    from dashboards.tracking import Tracker

STATUS: dict[Ended, RunStatus] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class DisplacedError(Exception):
    """The next trial does not fit on the nodes that are left, and none runs. It ends Tune's run of the trials."""


class TrialCallback(Callback):
    """Drives a Recorder and a Progress, and collects how each trial ended in ``outcomes``.

    A trial's config carries its case id under ``case``; a result carries the record of a completed round under
    ``record``, or under ``error`` the cause of a failure in words for the user, under ``user_error`` whether it was a
    UserError, and under ``taken`` whether another command has continued the run. MLflow's runs are that command's then:
    nothing more is recorded.
    """

    def __init__(
        self,
        cases: Iterable[Case],
        recorder: Recorder,
        progress: Progress,
        history: Callable[[str], list[RoundRecord]],
        about: Callable[[Case], About] | None = None,
        on_end: Callable[[str, Outcome], None] | None = None,
        waiting: Callable[[str], str] | None = None,
        in_use: Callable[[], Use] | None = None,
        fits: Callable[[str], bool] | None = None,
        losses: Losses | None = None,
    ) -> None:
        """Create the callback.

        Args:
            cases: All cases of the sweep.
            recorder: Where MLflow is told about trials.
            progress: Where the display is told about trials.
            history: Returns the records that a case has on disk.
            about: Returns what is recorded of a case beyond its experiment.
            on_end: Called with each trial's outcome.
            waiting: Returns a sentence on the resources that a case is waiting for.
            in_use: Returns the use of the cluster.
            fits: Returns whether the cluster has enough nodes for a case, as it was planned.
            losses: What processes that died or hung have cost each case, in earlier commands too.
        """
        self.cases = {case.id: case for case in cases}
        self.recorder, self.progress, self.history = recorder, progress, history
        self.about, self.on_end = about or (lambda case: About()), on_end
        self.outcomes: dict[str, Outcome] = {}
        self.servers = Servers()
        self.displaced: set[str] = set()  # cases without a place on the nodes that are left
        self.over: OwnershipLostError | None = None  # another command has continued the run
        self.faults: set[tuple[str, str]] = set()
        self.until: Mapping[str, int] = {}  # rounds after which trials of a population pause, by case
        self.tags: dict[str, dict[str, str]] = {}  # further tags of trials, which are set when they end
        self._records: dict[str, tuple[RoundRecord, ...]] = {}
        self._errors: dict[str, tuple[str, bool]] = {}
        self.pending = Pending(progress, waiting, in_use, fits)
        self._losses = losses or Losses()
        self._stuck = False  # whether no trial runs, and the next one does not fit on the nodes that are left
        self.warnings = TrialWarnings(self.cases)

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state. Tune pickles its callbacks and never restores them; a display cannot be pickled."""
        return {}

    def faulty(self, what: str, error: Exception) -> None:
        kind = (what, type(error).__name__)
        if kind not in self.faults:
            self.faults.add(kind)
            say(f"recording failed in {kind[0]} ({kind[1]}: {error}); training is not touched by it")

    def record(self, name: str, what: Callable[["Tracker"], None]) -> None:
        """Have the tracker do something, unless another command has continued the run. An exception in it is printed
        and ends nothing."""
        if self.over:
            return
        self.recorder.call(what, lambda error: self.faulty(name, error))

    def add(self, cases: Iterable[Case]) -> None:
        """Add cases that a search has suggested."""
        for case in cases:
            self.cases[case.id] = case
            self.progress.plan(case)

    def change(self, case: Case, sentence: str) -> None:
        """Replace a case that goes on with other values, and say so.

        Args:
            case: The case.
            sentence: What has changed.
        """
        self.cases[case.id] = case
        self.changed(case.id, sentence)
        with suppress(OSError, UnicodeError):  # the trial goes on if the output is closed
            print(f"{case.id}  {one_line(sentence)}", flush=True)

    def changed(self, case_id: str, sentence: str) -> None:
        """Note what has changed of a case, for its tag ``changes``."""
        tags = self.tags.setdefault(case_id, {})
        tags["changes"] = f"{tags['changes']}; {sentence}" if "changes" in tags else sentence

    def expect(self, more: int) -> None:
        """Set the number of trials that are not known yet."""
        self.progress.more = more

    def refuse(self, case: Case) -> None:
        """Record a suggested case that is no valid experiment as a failed trial, with ``case.problem`` as the cause."""
        self.outcomes[case.id] = Outcome("failed", (), case.problem, True)  # whatever else fails
        self._refused(case)

    @never_raises
    def _refused(self, case: Case) -> None:
        self._open(case)
        self.progress.start(case)
        self._end(case.id, self.outcomes[case.id])

    @never_raises
    def restore(self, case_id: str, outcome: Outcome) -> None:
        """Show a trial that ended in an earlier process as done, and deliver to MLflow what it lacks of it."""
        case = self.cases[case_id]
        self.outcomes[case_id] = outcome
        stopped = self._stopped(case_id, outcome)
        self.record("settle", lambda tracker: self._settle(tracker, case, outcome, stopped))
        self.progress.restore(case, outcome.rows, outcome.status, outcome.error)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Print now and then that no trial runs because the resources of the next one are taken.

        Args:
            iteration: Number of Tune's step.
            trials: All trials so far.
            info: Not used.

        Raises:
            OwnershipLostError: Another command has continued the run. It ends the sweep.
            DisplacedError: The next trial does not fit on the nodes that are left, and none runs.
        """
        if self.over:
            raise self.over
        self._look_at_pending(trials)
        if self._stuck:
            raise DisplacedError

    @never_raises
    def _look_at_pending(self, trials: list[Trial]) -> None:
        displaced = self.pending.look(trials)
        self.displaced |= displaced
        self._stuck = bool(displaced) or (bool(self.displaced) and all(trial.is_finished() for trial in trials))

    @never_raises
    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        case = self.cases[trial.config["case"]]
        self.servers.start(case.id)
        self.outcomes.pop(case.id, None)
        self._errors.pop(case.id, None)
        self._open(case)
        records = self._records[case.id] = merged(self.history(case.id))
        self.record("deliver", lambda tracker: tracker.deliver(case.id, records))
        self.progress.start(case, records)

    @never_raises
    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        case_id = trial.config["case"]
        if result.get("taken"):
            self.over = OwnershipLostError(str(result["error"]))
        elif result.get("error"):
            self._errors[case_id] = str(result["error"]), bool(result.get("user_error"))
        if displaced := result.get("displaced"):
            self.displaced.add(case_id)
            self.warnings.displaced(case_id, displaced)
        if losing := result.get("losing"):
            self.warnings.losing(case_id, f"a client actor ({losing})", result["reached"])
        record: RoundRecord | None = result.get("record")
        if record is None:
            return
        self.warnings.of_round(case_id, result)
        if machines := result.get("machines"):
            self.tags.setdefault(case_id, {})["machines"] = machines
        if lost := result.get("lost"):
            self._losses.add(case_id, f"since it lost a client actor ({lost})", result["reached"])
        record, sentence = self._losses.regained(case_id, self._records.get(case_id, ()), record)
        if sentence:
            self.warnings.say(case_id, sentence)
        self._records[case_id] = merged(self._records.get(case_id, ()), [record])
        self.record("deliver", lambda tracker: tracker.deliver(case_id, [record]))
        self.recorder.begin()
        trial.run_metadata.num_failures = 0  # resources.max_restarts counts from the last completed round
        self._losses.keep(case_id)
        self.progress.row(case_id, record)

    @never_raises
    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        case_id = trial.config["case"]
        self.servers.end(case_id)
        records = self._records.get(case_id, ())
        if self.over or case_id in self.displaced:
            return
        if case_id in self._errors:
            self._end(case_id, Outcome("failed", records, *self._errors[case_id]))
            return
        if records and records[-1].round == self.until.get(case_id):
            return  # it goes on later
        complete = bool(records) and records[-1].round >= self.cases[case_id].experiment.training.rounds
        self._end(case_id, Outcome("finished" if complete else "stopped", records))

    @never_raises
    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.servers.die(trial.config["case"])
        self._lose_server(trial)

    @never_raises
    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        case_id = trial.config["case"]
        ran = self.servers.end(case_id)
        if self.servers.retry(case_id, ran, lambda: trial.should_recover()):
            if ran is not None:
                self._lose_server(trial)
            return
        if case_id not in self._records:  # it never started, and is recorded in MLflow all the same
            self._open(self.cases[case_id])
        if server_died(trial):
            self._count(case_id, trials_failed=1)
        error = self._errors.get(case_id) or (failure_of(trial), False)
        self._end(case_id, Outcome("failed", self._records.get(case_id, ()), *error))

    def _lose_server(self, trial: Trial) -> None:
        """Note that a trial goes back to its last checkpoint since the process of its server died."""
        case_id = trial.config["case"]
        self._count(case_id, retries=1)
        reached = 0
        with suppress(UserError):  # continuing from damaged checkpoints raises it again
            reached = max((record.round for record in self.history(case_id)), default=0)
        why = str(raised(trial) or "its process ended").partition("\n")[0]  # then come the actor's ids
        self._losses.add(case_id, f"since it lost its server ({why})", reached)
        self.warnings.losing(case_id, f"its server ({why})", reached)

    def _count(self, case_id: str, **amounts: float) -> None:
        """Export counts of a trial whose server has died: others are exported by the server."""
        TrialMetrics(self.cases[case_id].experiment, case_id).add(**amounts)

    def _open(self, case: Case) -> None:
        now = time.time()  # MLflow may be told much later
        self.record("open_trial", lambda tracker: tracker.open_trial(case, self.about(case), now))

    def _settle(self, tracker: "Tracker", case: Case, outcome: Outcome, stopped: str) -> None:
        status, about = STATUS[outcome.status], self.about(case)
        tracker.settle(case, outcome.rows, status, outcome.error, stopped, about=about)

    def _end(self, case_id: str, outcome: Outcome) -> None:
        self.outcomes[case_id] = outcome
        try:
            if self.on_end:
                self.on_end(case_id, outcome)
        except OwnershipLostError as lost:
            self.over = lost
        finally:  # on a full disk no outcome is kept; the display and MLflow have it all the same
            stopped = self._stopped(case_id, outcome)
            status, error, now = STATUS[outcome.status], outcome.error, time.time()
            tags = {"gpus.unused": unused} if (unused := self.warnings.unused_gpus.get(case_id)) else {}
            tags |= self.tags.get(case_id, {})
            tags |= {"losses": "; ".join(told)} if (told := self._losses.of(case_id).sentences) else {}
            self.record("close_trial", lambda tracker: tracker.close_trial(case_id, status, error, stopped, now, tags))
            self.progress.finish(case_id, outcome.status, outcome.error)

    def _stopped(self, case_id: str, outcome: Outcome) -> str:
        if outcome.status != "stopped":
            return ""
        reached = outcome.rows[-1].round if outcome.rows else 0
        return f"after round {reached} of {self.cases[case_id].experiment.training.rounds}"
