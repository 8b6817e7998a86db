"""The median of each coordinate (Yin et al. 2018, Byzantine-Robust Distributed Learning, definition 1)."""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations.base import IndividualAggregation, State, Weight, samples
from fedtext.aggregations.update_set import UpdateSet, moved
from fedtext.messages import Update


class Median(IndividualAggregation):
    """Median of each coordinate over the updates (Yin et al. 2018, definition 1).

    For an even number of updates it is the mean of the two middle values. Sample counts are not used. A row of the
    embedding that most clients do not have is unchanged, since an absent row counts as unchanged.

    Memory: all updates of the round, in float32."""

    name: Literal["median"] = "median"
    secure = "it reads each client's value of every coordinate, which secure aggregation would hide"

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        return moved(state, UpdateSet(state, updates).combined(lambda changes_KRN: np.median(changes_KRN, 0))), {}
