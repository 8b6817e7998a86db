"""All trials of a sweep, scheduled by Ray Tune."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import ray
from ray import tune
from ray.exceptions import RayActorError, RayError
from ray.tune import Callback, FailureConfig, RunConfig, TuneConfig, Tuner
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator

from actors.crew import LOST
from actors.interrupt import interruptible
from actors.pulse import watching
from actors.trial import Assignment, Given, serve

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
    # Tune has the credentials of S3 in the runtime environment of its actors, and Ray writes that to its logs. Trials
    # get them with their assignments.
    class_cache.ENV_VARS_TO_PROPAGATE.difference_update(
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
    )


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

LOOK_S = 5.0  # seconds between two questions of how many trials may run at the same time


def run(
    assignments: Mapping[str, Assignment],
    callbacks: Sequence[Callback],
    order: TrialScheduler,
    concurrent: Callable[[], int],
    max_restarts: int,
    reuse: bool = True,
) -> None:
    """Run each assignment as a trial, until all have ended. Results are passed to the callbacks.

    Args:
        assignments: The trials, by case.
        callbacks: Callbacks of Tune.
        order: The scheduler.
        concurrent: Returns the largest number of trials at the same time. It is asked again while trials run, since a
            cluster may grow.
        max_restarts: Number of times a trial is restarted after its process died.
        reuse: Whether a process continues with the next trial. If it dies between two trials, Tune gives up the second.

    Raises:
        Interrupted: Ctrl-C has stopped the trials.
    """
    server_node = ray.util.get_node_ip_address()
    bundles = {case: assignment.plan.bundles(server_node) for case, assignment in assignments.items()}
    trainable = tune.with_resources(
        tune.with_parameters(serve, assignments=dict(assignments)), lambda config: bundles[config["case"]]
    )
    limited = BasicVariantGenerator(max_concurrent=concurrent())
    config = TuneConfig(search_alg=limited, scheduler=order, reuse_actors=reuse)
    space = {"case": tune.grid_search(list(assignments))}
    _fit(trainable, space, config, [Growing(limited, concurrent), *callbacks], max_restarts)


class Growing(Callback):
    """Lets more trials run at the same time when the cluster has grown. Fewer it never does."""

    def __init__(self, limited: BasicVariantGenerator | ConcurrencyLimiter, concurrent: Callable[[], int]) -> None:
        """Create it.

        Args:
            limited: Where Tune gets its trials from.
            concurrent: Returns the largest number of trials at the same time.
        """
        self.limited, self.concurrent, self.look_at = limited, concurrent, 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state. Tune pickles its callbacks and never restores them."""
        return {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Ask now and then how many trials may run.

        Args:
            iteration: Number of Tune's step.
            trials: All trials so far.
            info: Not used.
        """
        if time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + LOOK_S
            with contextlib.suppress(RayError, RuntimeError):  # the head does not answer: that is said elsewhere
                self.limited.max_concurrent = max(self.limited.max_concurrent, self.concurrent())


class Source(Protocol):
    """Cases that are not known before the sweep begins."""

    def next(self) -> tuple[str, Assignment] | None:
        """Return the next case and its assignment; None if it has to wait for trials that run."""

    @property
    def exhausted(self) -> bool:
        """Whether there will be no further case."""


class _Sourced(Searcher):
    """Tune's view of a source."""

    def __init__(self, source: Source) -> None:
        super().__init__(metric="round", mode="max")  # it needs some; the source looks at records by itself
        self.source, self.server_node = source, ray.util.get_node_ip_address()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        found = self.source.next()
        if found is None:
            return Searcher.FINISHED if self.source.exhausted else None
        case, assignment = found
        return {"case": case, "given": Given(ray.put(assignment), assignment.plan.bundles(self.server_node))}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: the source is told by a callback, which has the records."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: a search is resumed from the run's folder."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, as ``save``."""


def search(
    source: Source,
    callbacks: Sequence[Callback],
    order: TrialScheduler,
    concurrent: Callable[[], int],
    max_restarts: int,
) -> None:
    """Run the cases of a source as trials, until it has no more and all have ended.

    Args:
        source: Yields the cases.
        callbacks, order, concurrent, max_restarts: As of ``run``.

    Raises:
        Interrupted: As ``run``.
    """
    trainable = tune.with_resources(tune.with_parameters(serve, assignments={}), lambda config: config["given"].bundles)
    limited = ConcurrencyLimiter(_Sourced(source), max_concurrent=concurrent())
    config = TuneConfig(search_alg=limited, num_samples=-1, scheduler=order, reuse_actors=True)
    _fit(trainable, {}, config, [Growing(limited, concurrent), *callbacks], max_restarts)


def _fit(
    trainable: Any, space: Mapping[str, Any], config: TuneConfig, callbacks: Sequence[Callback], max_restarts: int
) -> None:
    # Tune's own records are not used: a sweep is resumed from the cases' folders. They are not written there, since
    # Tune ends all trials if it cannot write.
    with tempfile.TemporaryDirectory(prefix="fedtext-tune-", ignore_cleanup_errors=True) as scratch:
        tuner = Tuner(
            trainable,
            param_space=dict(space),
            tune_config=config,
            run_config=RunConfig(
                name="tune",
                storage_path=scratch,
                callbacks=list(callbacks),
                failure_config=FailureConfig(max_failures=max_restarts),
                verbose=0,
            ),
        )
        with interruptible(), watching():
            tuner.fit()
