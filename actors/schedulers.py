"""Schedulers of Ray Tune that stop the worse trials early."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler

from fedtext.config.tune import Tune
from fedtext.records import RoundRecord


@dataclass(frozen=True)
class _ByCase:
    """A trial for a scheduler, identified by its case."""

    trial_id: str
    config: dict[str, Any] = field(compare=False)

    @staticmethod
    def of(case: str) -> "_ByCase":
        return _ByCase(case, {"case": case})


class Sparing(TrialScheduler):
    """A scheduler that knows trials by their case, so that a resumed sweep goes on comparing with what was reached
    before, and never stops the cases in ``spared``: a reference row is worth something only when complete."""

    spared: set[str]

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, _ByCase.of(trial.config["case"]))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if trial.config["case"] in self.spared or not (scores := _scores(result)):
            return TrialScheduler.CONTINUE
        return super().on_trial_result(tune_controller, _ByCase.of(trial.config["case"]), scores)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        if trial.config["case"] not in self.spared and (scores := _scores(result)):
            super().on_trial_complete(tune_controller, _ByCase.of(trial.config["case"]), scores)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_remove(tune_controller, _ByCase.of(trial.config["case"]))

    def remember(self, histories: Mapping[str, Sequence[RoundRecord]]) -> None:
        """Add the records of trials of an earlier, interrupted sweep."""
        for case, records in histories.items():
            self.on_trial_add(None, _ByCase.of(case))
            for record in records:
                self.on_trial_result(None, _ByCase.of(case), {"record": record})


class SparingASHA(Sparing, ASHAScheduler):
    """Asynchronous successive halving (Li et al. 2020) of all but the spared cases."""

    def __init__(self, spared: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.spared = set(spared)


class SparingMedian(Sparing, MedianStoppingRule):
    """The median stopping rule (Golovin et al. 2017) of all but the spared cases."""

    def __init__(self, spared: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.spared = set(spared)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Judge a trial by the records so far, whatever was decided of it before.

        Tune's own rule takes each trial for ended once it has been worse than the median. A trial of an earlier sweep
        may have gone on after that round: it was judged there before the others had come so far. A round that a trial
        repeats after it went back to its last checkpoint was judged before, and counts once.

        Args:
            tune_controller: Tune's, which is not used.
            trial: The trial.
            result: Its report.

        Returns:
            Whether it goes on.
        """
        self._stopped_trials.discard(_ByCase.of(trial.config["case"]))
        if self._has(trial, result):
            return TrialScheduler.CONTINUE
        return super().on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Note that a trial has ended. Tune passes its last report once more, and its own rule would count it twice.

        Args:
            tune_controller: Tune's, which is not used.
            trial: The trial.
            result: Its last report.
        """
        if not self._has(trial, result):
            super().on_trial_complete(tune_controller, trial, result)

    def _has(self, trial: Any, result: Mapping[str, Any]) -> bool:
        """Return whether a report is of a round that has been reported before."""
        record: RoundRecord | None = result.get("record")
        known = self._results.get(_ByCase.of(trial.config["case"]), ())
        return record is not None and any(one["round"] == record.round for one in known)

    def remember(self, histories: Mapping[str, Sequence[RoundRecord]]) -> None:
        """Add the records of trials of an earlier, interrupted sweep. Those that did not end there are judged anew."""
        super().remember(histories)
        self._stopped_trials.clear()

    def _on_insufficient_samples(self, tune_controller: Any, trial: Any, time: float) -> str:
        return TrialScheduler.CONTINUE  # Tune's own would pause the trial, and another one take its processes


def _scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a scheduler compares of a report: the metrics of its record, and the round; empty for that of an
    error."""
    record: RoundRecord | None = result.get("record")
    return {} if record is None else {**record.metrics, "round": record.round}


def scheduler(config: Tune, rounds: int, spared: Sequence[str]) -> TrialScheduler:
    """Return the scheduler of an experiment.

    Args:
        config: The section ``tune``.
        rounds: Number of rounds of a trial.
        spared: Cases that the scheduler must not stop.
    """
    compared: dict[str, Any] = {"time_attr": "round", "metric": config.metric, "mode": config.direction}
    compared |= {"grace_period": config.grace_rounds}
    if config.scheduler == "asha":
        return SparingASHA(spared, **compared, max_t=rounds, reduction_factor=config.reduction)
    if config.scheduler == "median":
        return SparingMedian(spared, **compared)
    return FIFOScheduler()
