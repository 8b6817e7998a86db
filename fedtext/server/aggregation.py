"""Exact weighted sums of the clients' updates.

Legend: N entries of the flat buffer, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations import SumAggregation
from fedtext.aggregations.mean import Mean
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update
from fedtext.methods import layouts
from fedtext.secure.ring import Ring, RingSum, Samples

# Adding and subtracting it rounds a number to a multiple of 2^-38, far below the resolution of float32 parameters. Sums
# of such numbers are exact in float64 as long as they stay below 2^15, and exact sums do not depend on the order.
_ROUNDER = 1.5 * 2**14
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
    """

    def __init__(
        self,
        layout: Layout,
        scale: float,
        *,
        uniform: bool,
        holders_only: bool,
        aggregation: SumAggregation | None = None,
    ) -> None:
        self.layout, self.scale, self.uniform = layout, scale, uniform
        self.aggregation: SumAggregation = aggregation or Mean()
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
        client = update.client
        pieces: list[tuple[int, NDArray[np.float32]]] = []  # offset and values of what is contiguous
        for name, delta in update.tensors.items():
            first = self.layout.starts[name]
            if name == TABLE and update.rows is not None:
                self._add_rows(client, update.rows, delta, share)
                if self.holders_V is not None:
                    self.holders_V[update.rows] += weight
            else:
                flat = delta.reshape(-1)
                pieces += [(first + start, flat[start : start + _CHUNK]) for start in range(0, len(flat), _CHUNK)]
        for together in _chunks(pieces):
            self._add_pieces(client, together, share)

    def _add_rows(self, client: int, rows_R: NDArray[np.int32], delta_RD: NDArray[np.float32], share: float) -> None:
        first, shape = self.layout.starts[TABLE], self.layout.shapes[TABLE]
        table_VD = self.sum_N[first : first + prod(shape)].reshape(shape)
        step = max(1, _CHUNK // delta_RD.shape[1])
        for start in range(0, len(rows_R), step):
            rows = rows_R[start : start + step]  # distinct, so that none is lost in +=
            table_VD[rows] += self._rounded(client, delta_RD[start : start + step], share)

    def _add_pieces(self, client: int, pieces: list[tuple[int, NDArray[np.float32]]], share: float) -> None:
        """Add pieces of an update. Many tensors are small, and rounded together."""
        flats, done = [flat for _, flat in pieces], 0
        rounded = self._rounded(client, flats[0] if len(flats) == 1 else np.concatenate(flats), share)
        for start, flat in pieces:
            self.sum_N[start : start + len(flat)] += rounded[done : done + len(flat)]
            done += len(flat)

    def _rounded(self, client: int, delta: NDArray[np.float32], share: float) -> NDArray[np.float64]:
        part = np.multiply(delta, share, dtype=np.float64)
        if not _largest(part) < LARGEST:  # also for NaN
            raise UserError(
                f"client {client} changed a parameter by {np.abs(delta).max():g} in one round, too much for an exact "
                "sum: lower training.optimizer.lr, or the noise of the uplink"
            )
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


def _chunks(pieces: Sequence[tuple[int, NDArray]]) -> Iterator[list[tuple[int, NDArray]]]:
    """Split pieces into groups of at most ``_CHUNK`` numbers; each alone has no more."""
    group: list[tuple[int, NDArray]] = []
    size = 0
    for piece in pieces:
        if size + len(piece[1]) > _CHUNK:
            yield group
            group, size = [], 0
        group.append(piece)
        size += len(piece[1])
    if group:
        yield group


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
        )

    def weight(self, update: Update) -> float:
        """Return w_k."""
        return 1.0 if self.uniform else float(update.samples)

    def check(self, update: Update) -> None:
        """Check what a client says of itself, and that an exact sum can hold its update.

        Raises:
            ValueError: It has another number of texts, or its update is too large.
        """
        if update.samples != self.samples[update.client]:
            raise ValueError(f"it says that it has {update.samples} train texts, and has {self.samples[update.client]}")
        if self.ring or not isinstance(self.aggregation, SumAggregation):
            return
        share, bound = self.weight(update) / self.scale, self.aggregation.largest
        named: Mapping[str, NDArray[np.float32]] = update.tensors
        if len(named) > 1 and sum(tensor.size for tensor in named.values()) <= _CHUNK:  # many are small
            whole = np.concatenate([tensor.reshape(-1) for tensor in named.values()])
            if min(_largest(whole), bound) * share < LARGEST:
                return
        for name, tensor in named.items():
            largest = _largest(tensor)
            if not min(largest, bound) * share < LARGEST:
                raise ValueError(
                    f"it changed {name} by {largest:g} in one round, too much for an exact sum: lower "
                    "training.optimizer.lr, or the noise of the uplink"
                )
