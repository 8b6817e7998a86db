"""The mean of updates of bounded norm (Sun et al. 2019, Can You Really Backdoor Federated Learning?)."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedtext.aggregations.base import SumAggregation
from fedtext.aggregations.norms import length
from fedtext.messages import Update


class NormBounded(SumAggregation):
    """Weighted mean of updates whose norm the server bounds (Sun et al. 2019).

    Delta = sum_k w_k delta_k / max(1, ||delta_k|| / norm) / sum_k w_k, with w_k = n_k or 1 (`server.weights`). The norm
    is L2, over all tensors together. An attacker's influence on the mean is bounded in length, not in direction.
    Partial sums are computed where the clients are, and are exact. The metric `norm_scaled` is the share of updates
    that were longer.

    Unlike the mechanism `clip` it is applied by the server, to the decoded updates, and guarantees a client nothing.

    Memory: one sum in float64."""

    name: Literal["norm_bounded"] = "norm_bounded"
    norm: float = Field(gt=0, description="the largest L2 norm of an update, over all its tensors together")
    secure = "the sum is enough, if clients scale their updates themselves and prove that they did"

    def factor(self, update: Update) -> float:
        found = length(update)
        return self.norm / found if found > self.norm else 1.0

    @property
    def largest(self) -> float:
        return self.norm

    def metrics(self, updates: int, scaled: int) -> Mapping[str, float]:
        return {"norm_scaled": scaled / updates}
