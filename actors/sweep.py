"""All trials of a sweep, scheduled by Ray Tune."""

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayActorError
from ray.tune import Callback, FailureConfig, RunConfig, TuneConfig, Tuner
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from actors.crew import LOST
from actors.trial import Assignment, serve
from fedtext.config.sections import Tune
from fedtext.records import RoundRecord

# The records come through our own callback; Tune's loggers would write each of them three more times.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
# A trial that failed reports its error and no metric; Tune would end the whole sweep over that.
os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # its tables and banners; the progress display is ours

# Tune sets an environment variable for every trial because of PyTorch Lightning, which is not used here. Workers that
# Ray has started in advance lack it, so that Ray would start others. A Ray without this setting is left alone.
with contextlib.suppress(ImportError, AttributeError):
    from ray.tune.execution import class_cache

    class_cache.DEFAULT_ENV_VARS.pop("PL_DISABLE_FORK", None)


# Tune restores a trial only after a RayActorError. Other errors of Ray for a lost process, such as that of its memory
# monitor, would end the whole sweep. They are turned into a RayActorError.
with contextlib.suppress(ImportError, AttributeError):
    from ray.air.execution._internal.actor_manager import RayActorManager

    _task_failed = RayActorManager._actor_task_failed

    def _actor_task_failed(self: RayActorManager, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, LOST) and not isinstance(exception, RayActorError):
            exception = RayActorError(error_msg=str(exception))
        _task_failed(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = _actor_task_failed


class SparingASHA(ASHAScheduler):
    """ASHA that identifies trials by their case, and never stops some of them.

    A resumed sweep can therefore compare with the results of the trials before it was interrupted.

    Args:
        spared: Cases that are never stopped, such as baselines, which are of use only if they are complete.
        options: Arguments of ``ASHAScheduler``.
    """

    def __init__(self, spared: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.spared = set(spared)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, _by_case(trial.config["case"]))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if trial.config["case"] in self.spared:
            return TrialScheduler.CONTINUE
        return super().on_trial_result(tune_controller, _by_case(trial.config["case"]), _scores(result))

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        if trial.config["case"] not in self.spared:
            super().on_trial_complete(tune_controller, _by_case(trial.config["case"]), _scores(result))

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_remove(tune_controller, _by_case(trial.config["case"]))

    def remember(self, histories: Mapping[str, Sequence[RoundRecord]]) -> None:
        """Add the records of trials of an earlier, interrupted sweep."""
        for case, records in histories.items():
            self.on_trial_add(None, _by_case(case))
            for record in records:
                self.on_trial_result(None, _by_case(case), {"record": record})


def _by_case(case: str) -> Any:
    """Return a trial for the scheduler, identified by its case."""
    return SimpleNamespace(trial_id=case, config={"case": case})


def _scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ASHA compares of a report: the metrics of its record, and the round; empty for that of an error."""
    record: RoundRecord | None = result.get("record")
    return {} if record is None else {**record.metrics, "round": record.round}


def scheduler(config: Tune, rounds: int, spared: Sequence[str]) -> TrialScheduler:
    """Return the scheduler of an experiment.

    Args:
        config: The section ``tune``.
        rounds: Number of rounds of a trial.
        spared: Cases that the scheduler must not stop.
    """
    if config.scheduler == "none":
        return FIFOScheduler()
    return SparingASHA(
        spared,
        time_attr="round",
        metric=config.metric,
        mode=config.direction,
        max_t=rounds,
        grace_period=config.grace_rounds,
    )


def run(
    assignments: Mapping[str, Assignment],
    callbacks: Sequence[Callback],
    order: TrialScheduler,
    concurrent: int,
    max_restarts: int,
    reuse: bool = True,
) -> None:
    """Run each assignment as a trial, until all have ended. Results are passed to the callbacks.

    Args:
        assignments: The trials, by case.
        callbacks: Callbacks of Tune.
        order: The scheduler.
        concurrent: Largest number of trials at the same time.
        max_restarts: Number of times a trial is restarted after its process died.
        reuse: Whether a process continues with the next trial. If it dies between two trials, Tune gives up the second.
    """
    server_node = ray.util.get_node_ip_address()
    bundles = {case: assignment.plan.bundles(server_node) for case, assignment in assignments.items()}
    trainable = tune.with_resources(
        tune.with_parameters(serve, assignments=dict(assignments)), lambda config: bundles[config["case"]]
    )
    # Tune's own records are not used: a sweep is resumed from the cases' folders. They are not written there, since
    # Tune ends all trials if it cannot write.
    with tempfile.TemporaryDirectory(prefix="fedtext-tune-", ignore_cleanup_errors=True) as scratch:
        tuner = Tuner(
            trainable,
            param_space={"case": tune.grid_search(list(assignments))},
            tune_config=TuneConfig(scheduler=order, max_concurrent_trials=concurrent, reuse_actors=reuse),
            run_config=RunConfig(
                name="tune",
                storage_path=scratch,
                callbacks=list(callbacks),
                failure_config=FailureConfig(max_failures=max_restarts),
                verbose=0,
            ),
        )
        tuner.fit()
