"""Exact weighted sums of the clients' updates.

Legend: N entries of the flat buffer, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations import SumAggregation
from fedtext.aggregations.mean import Mean
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import SideBySide, Update
from fedtext.methods import layouts
from fedtext.secure.ring import Ring, RingSum, Samples

# Adding and subtracting it rounds a number to a multiple of 2^-38, far below the resolution of float32 parameters. Sums
# of such numbers are exact in float64 as long as they stay below 2^15, and exact sums do not depend on the order.
_ROUNDER, _FINEST = 1.5 * 2**14, 2.0**-38
FARTHEST = 2.0**40  # bound of a change of a parameter: aggregations add up squares, some of them in float32
LARGEST = 2.0**12  # bound of a summand: the sum exceeds 2^15 only if several clients have such a value at one place
_CHUNK = 1 << 15  # numbers at a time, so that intermediate results stay in the cache


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


class WeightedSum:
    """sum_k w_k factor_k delta_k over some clients, with w_k = n_k or 1, and the factor_k of the aggregation.

    Partial sums can be merged in any order and grouping to the same bits, so that each actor can add up the updates of
    its own clients.

    Args:
        layout: The tensors of an update, tables with all rows.
        scale: Sum of the weights of all clients, the same in all partial sums.
        uniform: Whether w_k = 1; otherwise w_k = n_k.
        holders_only: Whether an embedding row is averaged only over the clients that sent it.
        aggregation: Its factors; None: all are 1.
        inward: Whether numbers are rounded towards zero, so that no update becomes longer than a clip has left it.
    """

    def __init__(
        self,
        layout: Layout,
        scale: float,
        *,
        uniform: bool,
        holders_only: bool,
        aggregation: SumAggregation | None = None,
        inward: bool = False,
    ) -> None:
        self.layout, self.scale, self.uniform = layout, scale, uniform
        self.aggregation: SumAggregation = aggregation or Mean()
        self.inward = inward
        self.updates = self.scaled = 0
        self.sum_N = np.zeros(layout.size)
        self.weight = 0.0
        self.holders_V = np.zeros(layout.shapes[TABLE][0]) if holders_only and TABLE in layout.shapes else None

    def add(self, update: Update) -> None:
        """Add an update.

        Raises:
            UserError: It is too large for an exact sum.
        """
        weight = 1.0 if self.uniform else float(update.samples)
        self.weight += weight
        factor = self.aggregation.factor(update)
        self.updates += 1
        self.scaled += factor != 1
        self._add(update, weight, weight * factor / self.scale)

    def insert(self, update: Update, rng: np.random.Generator) -> None:
        """Add an update of no client. See ``Sum``."""
        assert self.uniform, "or it would have a weight"
        self._add(update, 0.0, self.aggregation.factor(update) / self.scale)

    def _add(self, update: Update, weight: float, share: float) -> None:
        if self.holders_V is not None and TABLE in update.tensors:
            self.holders_V[slice(None) if update.rows is None else update.rows] += weight
        if (joined := _joined(update.tensors)) is not None:  # all elements are rounded at once
            rounded_N = self._rounded(update.client, joined.values_N, share)
            for name, start in joined.starts.items():
                size = update.tensors[name].size
                self._add_part(name, rounded_N[start : start + size], update.rows)
            return
        for name, delta in update.tensors.items():
            if name == TABLE and update.rows is not None:
                step = max(1, _CHUNK // delta.shape[1])
                for start in range(0, len(delta), step):
                    rounded_N = self._rounded(update.client, delta[start : start + step], share).reshape(-1)
                    self._add_part(name, rounded_N, update.rows[start : start + step])
            else:
                flat_N = delta.reshape(-1)
                first = self.layout.starts[name]
                for start in range(0, len(flat_N), _CHUNK):
                    rounded_N = self._rounded(update.client, flat_N[start : start + _CHUNK], share)
                    self.sum_N[first + start : first + start + len(rounded_N)] += rounded_N

    def _add_part(self, name: str, rounded_N: NDArray[np.float64], rows_R: NDArray[np.int32] | None) -> None:
        """Add a whole tensor, or rows of the table."""
        first, shape = self.layout.starts[name], self.layout.shapes[name]
        if name == TABLE and rows_R is not None:
            table_VD = self.sum_N[first : first + prod(shape)].reshape(shape)
            table_VD[rows_R] += rounded_N.reshape(len(rows_R), *shape[1:])  # distinct rows, so that none is lost in +=
        else:
            self.sum_N[first : first + len(rounded_N)] += rounded_N

    def _rounded(self, client: int, delta: NDArray[np.float32], share: float) -> NDArray[np.float64]:
        part = np.multiply(delta, share, dtype=np.float64)
        if not _largest(part) < LARGEST:  # also for NaN
            raise UserError(
                f"client {client} changed a parameter by {np.abs(delta).max():g} in one round, too much for an exact "
                "sum: lower training.optimizer.lr, or the noise of the uplink"
            )
        if self.inward:
            part *= 1 / _FINEST
            np.trunc(part, out=part)
            part *= _FINEST
        else:
            part += _ROUNDER
            part -= _ROUNDER
        return part

    def merge(self, other: "WeightedSum") -> None:
        """Add another partial sum."""
        self.weight += other.weight
        self.updates += other.updates
        self.scaled += other.scaled
        self.sum_N += other.sum_N
        if self.holders_V is not None and other.holders_V is not None:
            self.holders_V += other.holders_V

    def metrics(self) -> Mapping[str, float]:
        """Return the aggregation's metrics of the round; empty without participants."""
        return self.aggregation.metrics(self.updates, self.scaled) if self.updates else {}

    def mean(self, expected: float | None = None) -> NDArray[np.float64] | None:
        """Compute sum_k w_k factor_k delta_k / sum_k w_k over the participants. The sum is overwritten.

        With ``holders_only`` an embedding row is averaged over the clients that sent it; otherwise an absent row counts
        as unchanged, exactly as if the client had sent the whole table.

        Args:
            expected: With uniform weights, the divisor: the expected number of clients, independent of how many took
                part. None: the sum of the participants' weights.

        Returns:
            The mean; None if no one took part and ``expected`` is None.
        """
        if not self.weight and expected is None:
            return None
        mean_N = self.sum_N
        mean_N *= self.scale / (expected or self.weight)
        if self.holders_V is not None:
            held_V = self.holders_V > 0  # the sum of the others is zero anyway
            shares_V = np.divide(self.weight, self.holders_V, out=np.zeros_like(self.holders_V), where=held_V)
            table = self.layout.views(mean_N)[TABLE]
            table *= shares_V[:, None]
        return mean_N


def _largest(tensor: NDArray) -> float:
    """Return the largest absolute value; 0 of an empty tensor, NaN if there is one."""
    return float(max(np.maximum.reduce(tensor, None), -np.minimum.reduce(tensor, None))) if tensor.size else 0.0


def _joined(tensors: Mapping[str, NDArray[np.float32]]) -> SideBySide | None:
    """Return the tensors of an update side by side; None if they have more than ``_CHUNK`` elements."""
    if isinstance(tensors, SideBySide):
        return tensors if len(tensors.values_N) <= _CHUNK else None
    sizes = [tensor.size for tensor in tensors.values()]
    if not 0 < sum(sizes) <= _CHUNK:
        return None
    values_N = np.concatenate([tensor.reshape(-1) for tensor in tensors.values()])
    return SideBySide(tensors, values_N, dict(zip(tensors, accumulate(sizes, initial=0), strict=False)))


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
        self.holders_only = experiment.server.absent_rows == "holders_only"
        self.inward = experiment.server.noise is not None
        self.ring: Ring | None = None
        if experiment.server.secure_aggregation:
            self.ring = Ring(experiment, samples, layouts.coordinates(layout, experiment.model.fixes))

    def empty(self) -> Sum:
        """Return an empty sum. If the aggregation needs individual updates, it is a sum for the weighted mean."""
        if self.ring:
            return RingSum(self.layout, self.ring, self.scale)
        aggregation = self.aggregation if isinstance(self.aggregation, SumAggregation) else None
        return WeightedSum(
            *(self.layout, self.scale),
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
        share, summed = self.weight(update) / self.scale, isinstance(self.aggregation, SumAggregation)
        bound = self.aggregation.largest if isinstance(self.aggregation, SumAggregation) else 0.0

        def fits(largest: float) -> bool:  # false for NaN
            return largest < FARTHEST and min(largest, bound) * share < LARGEST

        joined = _joined(update.tensors)
        if joined is not None and fits(_largest(joined.values_N)):
            return
        for name, tensor in update.tensors.items():
            if not fits(largest := _largest(tensor)):
                what = "an exact sum" if summed else f"aggregation {self.aggregation.name}"
                raise ValueError(
                    f"it changed {name} by {largest:g} in one round, too much for {what}: lower training.optimizer.lr, "
                    "or the noise of the uplink"
                )
