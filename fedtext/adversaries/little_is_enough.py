"""Updates just far enough from the mean of others.

Legend: K adversaries.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.adversaries.base import Collusion
from fedtext.aggregations.base import State
from fedtext.aggregations.update_set import UpdateSet
from fedtext.layout import TABLE
from fedtext.messages import Update


class LittleIsEnough(Collusion):
    """Adversaries all send mu - z sigma, just within the spread of updates (Baruch et al. 2019, algorithm 3).

    mu and sigma are mean and standard deviation of their own updates, in each coordinate. With `z: auto` it is the
    largest z for which enough honest updates are expected to be farther from the mean to make a majority with those
    sent: Phi(z) = (n - m - s) / (n - m), with n updates in the round, m of them adversaries', and s =
    floor(n / 2 + 1) - m; at least 0. Where adversaries are the majority by themselves (s <= 0) any z would do, and
    Phi(z) is 1 - 1 / (2 n). With a single adversary in a round sigma is 0, and it sends its own update."""

    name: Literal["little_is_enough"] = "little_is_enough"
    z: float | Literal["auto"] = Field("auto", description="distance from the mean, in standard deviations")

    def choose(self, own: Sequence[Update], honest: int, state: State) -> list[Update]:
        if len(own) == 1:
            return list(own)
        z = self.distance(len(own), honest)

        def chosen(changes_KRN: NDArray[np.float64]) -> NDArray[np.float64]:
            return changes_KRN.mean(0) - z * changes_KRN.std(0)

        made = UpdateSet(state, own).combined(chosen)
        with np.errstate(over="ignore"):  # the server refuses what is not finite
            tensors = {name: values.astype(np.float32) for name, values in made.items()}
        rows_R = _rows(own)
        if rows_R is not None:
            tensors[TABLE] = tensors[TABLE][rows_R]
        return [Update(update.client, update.samples, tensors, rows=rows_R) for update in own]

    def distance(self, adversaries: int, honest: int) -> float:
        """Return z for these numbers of updates in a round."""
        if self.z != "auto":
            return self.z
        whole = adversaries + honest
        needed = whole // 2 + 1 - adversaries
        return NormalDist().inv_cdf(max(1 - needed / honest, 0.5) if needed > 0 else 1 - 1 / (2 * whole))


def _rows(updates: Sequence[Update]) -> NDArray[np.int32] | None:
    """Return the rows of the table that one of the updates has, ascending; None: all."""
    rows = [update.rows for update in updates if update.rows is not None]
    return np.unique(np.concatenate(rows)) if len(rows) == len(updates) else None
