"""The sums of clients' updates that an experiment needs, and what an update has to be to take part.

Legend: N entries of the flat buffer.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations import SumAggregation
from fedtext.config.experiment import Experiment
from fedtext.config.participation import FEW
from fedtext.layout import Layout
from fedtext.messages import Update
from fedtext.methods import layouts
from fedtext.secure.ring import Ring, RingSum, Samples
from fedtext.server.weighted_sum import LARGEST, WeightedSum, largest_of, side_by_side

FARTHEST = 2.0**40  # bound of a change of a parameter: aggregations add up squares, some of them in float32


class Sum(Protocol):
    """The sum of some clients' updates. Partial sums can be merged in any order and grouping to the same bits."""

    sum_N: NDArray[Any]

    @property
    def weight(self) -> float:
        """Sum of the clients' weights."""

    def add(self, update: Update) -> None:
        """Add an update."""

    def insert(self, update: Update, rng: np.random.Generator) -> None:
        """Add an update of no client, such as a canary's, which counts in no weight.

        Args:
            update: The update, with all rows of the table.
            rng: Source of its rounding, if the sum is of integers.
        """

    def merge(self, other: Any) -> None:
        """Add another partial sum, of the same kind."""

    def metrics(self) -> Mapping[str, float]:
        """Return the aggregation's metrics of the round; empty without participants."""

    def mean(self, expected: float | None = None) -> NDArray[np.float64] | None:
        """Return the weighted mean of the updates. The sum is overwritten.

        Args:
            expected: With uniform weights, the divisor: the expected number of clients, independent of how many took
                part. None: the sum of the participants' weights.

        Returns:
            The mean; None if no one took part and ``expected`` is None.
        """


def weighed(updates: Iterable[Update], weight: Callable[[Update], float], weights: list[float]) -> Iterator[Update]:
    """Yield updates, and append the weight of each to ``weights``.

    Args:
        updates: The updates.
        weight: Returns the weight of one.
        weights: What they are appended to.
    """
    for update in updates:
        weights.append(weight(update))
        yield update


class Summation:
    """The sums of an experiment, which the server and the places that host clients compute alike.

    Args:
        experiment: Its ``server`` defines the weights of clients and the treatment of absent rows.
        layout: The tensors of an update.
        samples: Number of train texts of each client that could ever take part.
    """

    def __init__(self, experiment: Experiment, layout: Layout, samples: Samples) -> None:
        self.layout, self.aggregation, self.samples = layout, experiment.aggregation, np.asarray(samples)
        self.uniform = experiment.server.weights == "uniform"
        self.scale = float(len(samples) if self.uniform else self.samples.sum())
        buffer = experiment.server.buffer
        self.unit = self._unit(experiment.participation.summed(len(samples), buffer.size if buffer else None))
        self.holders_only = experiment.server.absent_rows == "holders_only"
        self.inward = experiment.server.noise is not None
        self.ring: Ring | None = None
        if experiment.server.secure_aggregation:
            self.ring = Ring(experiment, samples, layouts.coordinates(layout, experiment.model.fixes))

    def _unit(self, clients: int) -> float:
        """Return what the weights of updates are divided by while they are added up.

        A sum keeps multiples of 2^-38. If weights were divided by those of a million clients, of whom a hundred send an
        update, small changes would be lost. A power of 2 rounds each quotient as before.

        Args:
            clients: Number of clients whose updates a round adds up.
        """
        if len(self.samples) <= FEW:
            return self.scale
        round_ = clients if self.uniform else np.partition(self.samples, -clients)[-clients:].sum()
        return math.ldexp(self.scale, -max(0, math.frexp(self.scale / float(round_))[1] - 1))

    def empty(self) -> Sum:
        """Return an empty sum. If the aggregation needs individual updates, it is a sum for the weighted mean."""
        if self.ring:
            return RingSum(self.layout, self.ring, self.scale)
        aggregation = self.aggregation if isinstance(self.aggregation, SumAggregation) else None
        return WeightedSum(
            *(self.layout, self.unit),
            uniform=self.uniform,
            holders_only=self.holders_only,
            aggregation=aggregation,
            inward=self.inward,
        )

    def weight(self, update: Update) -> float:
        """Return w_k."""
        return 1.0 if self.uniform else float(update.samples)

    def check(self, update: Update) -> None:
        """Check what a client says of itself, and that its update can be aggregated.

        Raises:
            ValueError: It has another number of texts, or its update is too large.
        """
        if update.samples != self.samples[update.client]:
            raise ValueError(f"it says that it has {update.samples} train texts, and has {self.samples[update.client]}")
        if self.ring:
            return
        share = self.weight(update) / self.unit
        summed = self.aggregation if isinstance(self.aggregation, SumAggregation) else None
        bound = summed.largest if summed else 0.0

        def fits(largest: float) -> bool:  # false for NaN
            return largest < FARTHEST and min(largest, bound) * share < LARGEST

        joined = side_by_side(update.tensors)
        if joined is not None and fits(largest_of(joined.values_N)):
            return
        for name, tensor in update.tensors.items():
            if not fits(largest := largest_of(tensor)):
                what = "an exact sum" if summed else f"aggregation {self.aggregation.name}"
                raise ValueError(
                    f"it changed {name} by {largest:g} in one round, too much for {what}: lower training.optimizer.lr, "
                    "or the noise that clients add"
                )
