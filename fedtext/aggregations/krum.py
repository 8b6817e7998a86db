"""Krum and multi-Krum (Blanchard et al. 2017, Machine Learning with Adversaries, section 4)."""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedtext.aggregations.base import IndividualAggregation, State, Weight, samples
from fedtext.aggregations.update_set import UpdateSet, moved
from fedtext.errors import UserError
from fedtext.messages import Update


class Krum(IndividualAggregation):
    """Krum and multi-Krum: the updates nearest to most others (Blanchard et al. 2017, section 4).

    The score of an update is the sum of its squared distances from the n - f - 2 nearest others, over all tensors
    together, with n updates in the round and f = `attackers`. Krum selects the update with the smallest score (keep =
    1), multi-Krum the unweighted mean of the `keep` smallest. Of equal scores the first client's counts. A round needs
    n >= 2 f + 3 updates, and at least `keep`.

    An embedding row that a client does not have counts as unchanged. The metric `krum_client` is the client with the
    smallest score, `krum_kept` the number of updates in the mean.

    Memory: all updates of the round, in float32. Time: n^2 / 2 times the number of coordinates."""

    name: Literal["krum"] = "krum"
    attackers: int = Field(1, ge=0, description="f: number of updates that may be arbitrary")
    keep: PositiveInt = Field(1, description="m: number of updates in the mean; 1: Krum, more: multi-Krum")
    secure = "it reads the distances between updates, which secure aggregation would hide"

    def problem(self, updates: int) -> str:
        needed = 2 * self.attackers + 3
        if updates < needed:
            return (
                f"server.aggregation.attackers: krum against {self.attackers} needs {needed} updates in a round, and "
                f"there are {updates}: lower it, or use more clients"
            )
        if updates < self.keep:
            return f"server.aggregation.keep: {self.keep} updates are needed, and there are {updates}: lower it"
        return ""

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        held = UpdateSet(state, updates)
        if problem := self.problem(len(held)):
            raise UserError(problem)
        best = np.argsort(self.scores(held.pairs()), kind="stable")[: self.keep]
        kept = UpdateSet(state, [held.updates[place] for place in best])
        metrics = {"krum_client": float(held.updates[best[0]].client), "krum_kept": float(len(kept))}
        return moved(state, kept.combined(lambda changes_KRN: changes_KRN.mean(0))), metrics

    def scores(self, squares_KK: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the score of each update, shape (K,).

        Args:
            squares_KK: Squared distances of all pairs, with zeros on the diagonal.
        """
        apart_KK = squares_KK.copy()
        np.fill_diagonal(apart_KK, np.inf)
        apart_KK.sort(1)
        return apart_KK[:, : len(apart_KK) - self.attackers - 2].sum(1)
