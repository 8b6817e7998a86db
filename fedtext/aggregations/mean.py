"""The weighted mean (McMahan et al. 2017, FedAvg)."""

from typing import Literal

from fedtext.aggregations.base import SumAggregation


class Mean(SumAggregation):
    """Weighted mean of the updates (McMahan et al. 2017, FedAvg).

    Delta = sum_k w_k delta_k / sum_k w_k, with w_k = n_k or 1 (`server.weights`). Its sums are exact, so that partial
    sums can be taken wherever clients live.

    Memory: one sum in float64."""

    name: Literal["mean"] = "mean"
    secure = "the sum is enough: secure aggregation could hide each update"
