"""The trimmed mean of each coordinate (Yin et al. 2018, Byzantine-Robust Distributed Learning, definition 2)."""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.aggregations.base import IndividualAggregation, State, Weight, samples
from fedtext.aggregations.update_set import UpdateSet, moved
from fedtext.messages import Update


class TrimmedMean(IndividualAggregation):
    """Mean of each coordinate without its largest and smallest values (Yin et al. 2018, definition 2).

    Of K values of a coordinate floor(share K) are left out at each end. Sample counts are not used. An embedding row
    that a client does not have counts as unchanged. The metric `trimmed` is the number of values left out at each end.

    Memory: all updates of the round, in float32."""

    name: Literal["trimmed_mean"] = "trimmed_mean"
    share: float = Field(
        0.1, ge=0, lt=0.5, description="beta: share of a coordinate's values left out at each end; 0: unweighted mean"
    )
    secure = "it reads each client's value of every coordinate, which secure aggregation would hide"

    def trimmed(self, updates: int) -> int:
        """Return how many of ``updates`` values are left out at each end."""
        return math.floor(self.share * updates + 1e-9)  # 0.29 * 100 is just below 29

    def problem(self, updates: int) -> str:
        if not self.share or self.trimmed(updates):
            return ""
        return (
            f"server.aggregation.share: {self.share:g} of {updates} updates is less than one at each end, so that "
            f"nothing is left out: set at least 1 / {updates}, or use another aggregation"
        )

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        held = UpdateSet(state, updates)
        cut = self.trimmed(len(held))

        def mean(changes_KRN: NDArray[np.float64]) -> NDArray[np.float64]:
            changes_KRN.sort(0)
            return changes_KRN[cut : len(held) - cut].mean(0)

        return moved(state, held.combined(mean)), {"trimmed": float(cut)}
