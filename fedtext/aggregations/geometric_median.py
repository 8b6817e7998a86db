"""The geometric median (Pillutla et al. 2022, Robust Aggregation for Federated Learning)."""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedtext.aggregations.base import IndividualAggregation, State, Weight, samples
from fedtext.aggregations.update_set import UpdateSet, moved
from fedtext.messages import Update


class GeometricMedian(IndividualAggregation):
    """Geometric median of the updates by smoothed Weiszfeld iterations (Pillutla et al. 2022, RFA).

    It minimises sum_k w_k ||z - delta_k|| over z, all tensors together, with w_k = n_k or 1 (`server.weights`).
    Starting at the weighted mean, an iteration is z <- sum_k beta_k delta_k / sum_k beta_k, with beta_k = w_k / max(nu,
    ||z - delta_k||). It divides the influence of one client far from K - 1 others by about K - 1.

    An embedding row that a client does not have counts as unchanged. The metric `geometric_clients` is the effective
    number of clients in the last iteration, (sum_k beta_k)^2 / sum_k beta_k^2.

    Memory: all updates of the round in float32, and two points in float64. An iteration passes over the updates twice.
    """

    name: Literal["geometric_median"] = "geometric_median"
    weighted = True
    iterations: PositiveInt = Field(8, description="number of smoothed Weiszfeld iterations, from the weighted mean")
    nu: float = Field(1e-6, gt=0, description="smoothing: a distance below it counts as nu")
    secure = (
        "an iteration is a weighted mean, which secure aggregation could take if clients computed their distances "
        "themselves"
    )

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        held = UpdateSet(state, updates)
        weights_K = np.array([weight(update) for update in held.updates])
        point, beta_K = _mean(held, weights_K), weights_K
        for _ in range(self.iterations):
            beta_K = weights_K / np.maximum(held.distances(point), self.nu)
            point = _mean(held, beta_K)
        return moved(state, point), {"geometric_clients": float(beta_K.sum() ** 2 / np.square(beta_K).sum())}


def _mean(held: UpdateSet, weights_K: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    shares_K = weights_K / weights_K.sum()
    return held.combined(lambda changes_KRN: np.einsum("k,krn->rn", shares_K, changes_KRN))
