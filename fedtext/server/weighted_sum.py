"""The weighted sum of clients' updates in float64, with the same bits in any order.

Legend: N entries of the flat buffer, V vocabulary.
"""

from collections.abc import Mapping
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations import SumAggregation
from fedtext.aggregations.mean import Mean
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import SideBySide, Update
from fedtext.server import native_sums

# Adding and subtracting it rounds a number to a multiple of 2^-38, far below the resolution of float32 parameters if
# weights are divided by about those of a round. Sums of such numbers are exact in float64 as long as they stay below
# 2^15, and exact sums do not depend on the order.
_ROUNDER, _FINEST, _EXACT = 1.5 * 2**14, 2.0**-38, 2.0**15
LARGEST = 2.0**12  # bound of a summand
_CHUNK = 1 << 15  # numbers at a time, so that intermediate results stay in the cache


class WeightedSum:
    """sum_k w_k factor_k delta_k over some clients, with w_k = n_k or 1, and the factor_k of the aggregation.

    Partial sums can be merged in any order and grouping to the same bits, so that each actor can add up the updates of
    its own clients.

    Args:
        layout: The tensors of an update, tables with all rows.
        scale: What weights are divided by, the same in all partial sums (``Summation.unit``).
        uniform: Whether w_k = 1; otherwise w_k = n_k.
        holders_only: Whether an embedding row is averaged only over the clients that sent it.
        aggregation: Its factors; None: all are 1.
        inward: Whether numbers are rounded towards zero, so that no update becomes longer than a clip has left it.

    Attributes:
        reach: Sum of the largest absolute summands of all updates: no partial sum of any of them is farther from 0.
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
        self.weight = self.reach = 0.0
        self.holders_V = np.zeros(layout.shapes[TABLE][0]) if holders_only and TABLE in layout.shapes else None

    def add(self, update: Update) -> None:
        """Add an update.

        Raises:
            UserError: It is too large for an exact sum, or all updates together are.
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
        self._most = 0.0
        self._add_tensors(update, share)
        self._reach_farther(self._most)

    def _add_tensors(self, update: Update, share: float) -> None:
        if (joined := side_by_side(update.tensors)) is not None:  # all elements are rounded at once
            rounded_N = self._rounded(update.client, joined.values_N, share)
            for name, start in joined.starts.items():
                size = update.tensors[name].size
                self._add_part(name, rounded_N[start : start + size], update.rows)
            return
        for name, delta in update.tensors.items():
            if self._added_in_c(update, name, delta, share):
                continue
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

    def _added_in_c(self, update: Update, name: str, delta: NDArray[np.float32], share: float) -> bool:
        """Add a tensor of an update. Returns False, with nothing added, if that is left to numpy."""
        first, rows_R = self.layout.starts[name], update.rows if name == TABLE else None
        sums_N = self.sum_N[first : first + prod(self.layout.shapes[name])]
        largest = native_sums.add_parts(sums_N, delta, share, self.inward, rows_R)
        if largest is not None:
            self._check_largest(update.client, delta, largest * abs(share))
        return largest is not None

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
        self._check_largest(client, delta, largest_of(part))
        if self.inward:
            part *= 1 / _FINEST
            np.trunc(part, out=part)
            part *= _FINEST
        else:
            part += _ROUNDER
            part -= _ROUNDER
        return part

    def _check_largest(self, client: int, delta: NDArray[np.float32], largest: float) -> None:
        """Note the largest absolute summand of a tensor. Raises UserError if it is too large for an exact sum."""
        if not largest < LARGEST:  # also for NaN
            raise UserError(
                f"client {client} changed a parameter by {np.abs(delta).max():g} in one round, too much for an exact "
                "sum: lower training.optimizer.lr, or the noise that clients add"
            )
        self._most = max(self._most, largest)

    def _reach_farther(self, distance: float) -> None:
        self.reach += distance
        if not self.reach < _EXACT:
            raise UserError(
                "the changes of all clients in one round are together too large for an exact sum: lower "
                "training.optimizer.lr, or the noise that clients add"
            )

    def merge(self, other: "WeightedSum") -> None:
        """Add another partial sum.

        Raises:
            UserError: Together they are too large for an exact sum.
        """
        self._reach_farther(other.reach)
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


def largest_of(tensor: NDArray) -> float:
    """Return the largest absolute value; 0 of an empty tensor, NaN if there is one."""
    return float(max(np.maximum.reduce(tensor, None), -np.minimum.reduce(tensor, None))) if tensor.size else 0.0


def side_by_side(tensors: Mapping[str, NDArray[np.float32]]) -> SideBySide | None:
    """Return the tensors of an update side by side; None if they have more than ``_CHUNK`` elements."""
    if isinstance(tensors, SideBySide):
        return tensors if len(tensors.values_N) <= _CHUNK else None
    sizes = [tensor.size for tensor in tensors.values()]
    if not 0 < sum(sizes) <= _CHUNK:
        return None
    values_N = np.concatenate([tensor.reshape(-1) for tensor in tensors.values()])
    return SideBySide(tensors, values_N, dict(zip(tensors, accumulate(sizes, initial=0), strict=False)))
