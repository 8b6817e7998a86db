"""How the server folds the clients' updates into the shared parameters.

Legend: N numbers of the flat buffer, V vocabulary.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations import SumAggregation
from fedtext.aggregations.mean import Mean
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update

# Adding and subtracting it rounds a number to a multiple of 2^-38, far below what float32 parameters can show. Sums of
# such numbers are exact in float64 as long as they stay below 2^15, and what is exact does not depend on the order.
_ROUNDER = 1.5 * 2**14
LARGEST = 2.0**12  # of any addend: several clients would have to agree on the same absurd number to leave 2^15
_CHUNK = 1 << 15  # numbers at a time, so that intermediate results stay in the cache


class WeightedSum:
    """sum_k w_k factor_k delta_k over any clients, with w_k = n_k or 1, and factor_k as the aggregation says.

    Sums of parts can be merged in any order and any grouping to the same bits: this is what lets each actor add up its
    own clients. ``scale`` is the sum of the weights of all clients there are, the same for all parts. Raises UserError
    if an update is so large that this could not be held.
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
        weight, client = 1.0 if self.uniform else float(update.samples), update.client
        self.weight += weight
        factor = self.aggregation.factor(update)
        self.updates += 1
        self.scaled += factor != 1
        share = weight * factor / self.scale
        sums = self.layout.views(self.sum_N)
        for name, delta in update.tensors.items():
            if name == TABLE and update.rows is not None:
                step = max(1, _CHUNK // delta.shape[1])
                for start in range(0, len(update.rows), step):
                    rows = update.rows[start : start + step]  # distinct, so that none is lost in +=
                    sums[name][rows] += self._rounded(client, delta[start : start + step], share)
                if self.holders_V is not None:
                    self.holders_V[update.rows] += weight
            else:
                into, flat = sums[name].reshape(-1), delta.reshape(-1)
                for start in range(0, len(flat), _CHUNK):
                    into[start : start + _CHUNK] += self._rounded(client, flat[start : start + _CHUNK], share)

    def _rounded(self, client: int, delta: NDArray[np.float32], share: float) -> NDArray[np.float64]:
        part = np.multiply(delta, share, dtype=np.float64)
        if len(part) and not max(part.max(), -part.min()) < LARGEST:  # also where it is not a number
            raise UserError(
                f"client {client} changed a parameter by {np.abs(delta).max():g} in one round, too much for an exact "
                "sum: lower training.optimizer.lr, or the noise of the uplink"
            )
        part += _ROUNDER
        part -= _ROUNDER
        return part

    def merge(self, other: "WeightedSum") -> None:
        """Adds what another part has summed."""
        self.weight += other.weight
        self.updates += other.updates
        self.scaled += other.scaled
        self.sum_N += other.sum_N
        if self.holders_V is not None and other.holders_V is not None:
            self.holders_V += other.holders_V

    def metrics(self) -> Mapping[str, float]:
        """Return the aggregation's metrics of the round; none of one without participants."""
        return self.aggregation.metrics(self.updates, self.scaled) if self.updates else {}

    def mean(self, expected: float | None = None) -> NDArray[np.float64] | None:
        """sum_k w_k factor_k delta_k / sum_k w_k over the participants, None if no one took part; or, of uniform
        weights, the sum divided by the ``expected`` number of clients, however many took part. The sum is used up.

        Where holders are counted an embedding row is averaged over the clients that sent it; otherwise an absent row
        counts as unchanged, exactly as if the client had sent the whole table.
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


class Summation:
    """How the updates of an experiment are added up, wherever that is done.

    Args:
        experiment: Its ``server`` says how clients are weighted and what an absent row counts as.
        layout: The shared tensors.
        samples: The numbers of train texts of all clients that could ever take part.
    """

    def __init__(self, experiment: Experiment, layout: Layout, samples: Sequence[int]) -> None:
        self.layout, self.aggregation = layout, experiment.aggregation
        self.uniform = experiment.server.weights == "uniform"
        self.scale = float(len(samples) if self.uniform else sum(samples))
        self.holders_only = experiment.server.absent_rows == "holders_only"

    def empty(self) -> WeightedSum:
        """Return a sum of no updates. Of an aggregation that sums are not enough for it is their mean."""
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

    def check_size(self, update: Update) -> None:
        """Check that an exact sum can hold an update.

        Raises:
            ValueError: If it is too large.
        """
        if not isinstance(self.aggregation, SumAggregation):
            return
        share, bound = self.weight(update) / self.scale, self.aggregation.largest
        for name, tensor in update.tensors.items():
            largest = float(max(tensor.max(), -tensor.min())) if tensor.size else 0.0
            if not min(largest, bound) * share < LARGEST:
                raise ValueError(
                    f"it changed {name} by {largest:g} in one round, too much for an exact sum: lower "
                    "training.optimizer.lr, or the noise of the uplink"
                )
