"""Metrics of a trial's progress for Prometheus, written through ``ray.util.metrics`` where a round ends, and by the
command where a trial's server has died.

Ray's agent on each node exports them as ``ray_<name>`` (a counter as ``ray_<name>_total``). Tags are names alone:
of the experiment, its method and the trial, never a text, a value of a key or a secret. Counters stay in an agent until
Ray ends, so they have no tag of the trial. A gauge goes 20 s after it was last set: it is set again every few seconds
while its trial runs, and is gone soon after the trial, or its process, has ended. Setting a value takes some 15 us.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Literal

import torch
from ray.util import metrics as ray_metrics

from fedtext.config.experiment import Experiment
from fedtext.records import RoundRecord

SLOW = 2.0  # a straggler takes longer than this many times the median of its round
# A counter begins with this, so that panels show 0 before its first event: Ray refuses to add 0, and this vanishes in
# any sum with a number.
NOTHING = 1e-300
AGAIN_S = 5.0  # seconds between two times that the gauges are set: Ray drops those of two of its reports before


@dataclass(frozen=True)
class Exported:
    """A metric that is exported.

    Attributes:
        name: Its name in Ray.
        kind: ``counter``: a sum over all trials of an experiment and method; ``gauge``: the latest value of a trial.
        description: What it says, with its unit.
    """

    name: str
    kind: Literal["counter", "gauge"]
    description: str

    @property
    def series(self) -> str:
        """Its name in Prometheus."""
        return f"ray_{self.name}" + ("_total" if self.kind == "counter" else "")

    @property
    def tags(self) -> tuple[str, ...]:
        """The names of its tags."""
        return ("experiment", "method") if self.kind == "counter" else ("experiment", "method", "trial")


def _counter(name: str, description: str) -> Exported:
    return Exported(f"fedtext_{name}", "counter", description)


def _gauge(name: str, description: str) -> Exported:
    return Exported(f"fedtext_{name}", "gauge", description)


COUNTERS = (
    _counter("rounds", "rounds completed; a round that is replayed after a loss counts again"),
    _counter("round_seconds", "wall time of rounds with their evaluation, in seconds"),
    _counter("evaluation_seconds", "wall time of evaluations, in seconds"),
    _counter("client_cpu_seconds", "CPU time of local updates, in seconds"),
    _counter("local_updates", "local updates that were aggregated"),
    _counter("clients_failed", "local updates left out because their client failed"),
    _counter("bytes_up", "bytes that clients sent"),
    _counter("bytes_down", "bytes that clients received"),
    _counter("stragglers", f"local updates that took more than {SLOW:g} times the median of their round"),
    _counter("late_updates", "local updates that had not returned in time (resources.hang_timeout_s, round_timeout_s)"),
    _counter("retries", "returns to the last checkpoint after a client actor or the server was lost"),
    _counter("trials_failed", "trials that ended with an error"),
)
GAUGES = (
    _gauge("running", "1 while the trial runs, then 0"),
    _gauge("round", "number of the last completed round"),
    _gauge("rounds_planned", "training.rounds"),
    _gauge("last_round_seconds", "wall time of the last round with its evaluation, in seconds"),
    _gauge("last_evaluation_seconds", "wall time of the last evaluation, in seconds"),
    _gauge("clients_per_second", "local updates of the last round by its time without evaluation"),
    _gauge("last_bytes_up", "bytes that clients sent in the last round"),
    _gauge("last_bytes_down", "bytes that clients received in the last round"),
    _gauge("last_stragglers", "stragglers of the last round"),
    _gauge("gpu_memory_bytes", "peak of the memory that torch has allocated on the GPU of a client actor; 0 on a CPU"),
)
EXPORTED = {exported.name: exported for exported in COUNTERS + GAUGES}


@cache
def _metric(name: str) -> ray_metrics.Metric:
    exported = EXPORTED[name]
    made = ray_metrics.Counter if exported.kind == "counter" else ray_metrics.Gauge
    return made(name, exported.description, exported.tags)


_lock = threading.Lock()  # of what is set again: a trial that ends must not be set running once more
_latest: dict[tuple[str, ...], float] = {}  # this process's gauges, by name, experiment, method and trial


@cache
def _keep_setting() -> None:
    """Set the gauges of this process again and again, from now until it ends."""

    def again() -> None:
        while True:
            time.sleep(AGAIN_S)
            with _lock:
                for (name, *tags), value in _latest.items():
                    _metric(name).set(value, dict(zip(EXPORTED[name].tags, tags, strict=True)))

    threading.Thread(target=again, name="fedtext-metrics", daemon=True).start()


@cache
def _begin_counters(experiment: str, method: str) -> None:
    for exported in COUNTERS:
        _metric(exported.name).inc(NOTHING, {"experiment": experiment, "method": method})


class TrialMetrics:
    """The metrics of one trial. A process has one at a time."""

    def __init__(self, experiment: Experiment, trial: str) -> None:
        """Create them, and forget the gauges of the process's earlier trial.

        Args:
            experiment: The experiment of the trial.
            trial: Name of its run and id of its case, RUN/CASE.
        """
        self.tags = {"experiment": experiment.name, "method": experiment.method.name}
        self.trial = trial
        with _lock:
            _latest.clear()

    def begin(self, rounds: int) -> None:
        """Say that the trial runs, and create the series of the counters.

        Args:
            rounds: Number of rounds of the trial.
        """
        _begin_counters(*self.tags.values())
        self._set(running=1, round=0, rounds_planned=rounds)

    def completed(self, record: RoundRecord, seconds: Sequence[float]) -> None:
        """Record a round.

        Args:
            record: The record of the round.
            seconds: Wall time of each of its local updates, in seconds.
        """
        found, slow = record.metrics, stragglers(seconds)
        total, training = found["round_seconds"], found["train_seconds"]
        self.add(
            rounds=1,
            round_seconds=total,
            client_cpu_seconds=found["train_cpu_seconds"],
            local_updates=found["clients_trained"],
            clients_failed=found.get("clients_failed", 0),
            bytes_up=found["bytes_up"],
            bytes_down=found["bytes_down"],
            stragglers=slow,
        )
        self._set(
            round=record.round,
            last_round_seconds=total,
            clients_per_second=found["clients_trained"] / training,
            last_bytes_up=found["bytes_up"],
            last_bytes_down=found["bytes_down"],
            last_stragglers=slow,
        )
        if record.clients:  # their metrics: the round was evaluated
            self.add(evaluation_seconds=total - training)
            self._set(last_evaluation_seconds=total - training)

    def add(self, **amounts: float) -> None:
        """Add to counters, which are named without ``fedtext_``. Nothing is added where an amount is 0."""
        for name, amount in amounts.items():
            if amount > 0:
                _metric(f"fedtext_{name}").inc(amount, self.tags)

    def end(self) -> None:
        """Say that the trial does not run any more. Its gauges are not set again."""
        self._set(running=0)
        with _lock:
            _latest.clear()

    def gpu_memory(self, used: bool) -> None:
        """Record the peak memory that this process has allocated on its GPU.

        Args:
            used: Whether it uses one.
        """
        self._set(gpu_memory_bytes=torch.cuda.max_memory_allocated() if used else 0)

    def _set(self, **values: float) -> None:
        _keep_setting()
        tags = self.tags | {"trial": self.trial}
        with _lock:
            for name, value in values.items():
                _metric(f"fedtext_{name}").set(float(value), tags)
                _latest[(f"fedtext_{name}", *tags.values())] = float(value)


def stragglers(seconds: Sequence[float]) -> int:
    """Return how many local updates of a round took more than ``SLOW`` times the median.

    Args:
        seconds: Wall time of each, in seconds.
    """
    limit = SLOW * median(seconds) if seconds else 0.0
    return sum(taken > limit for taken in seconds)
