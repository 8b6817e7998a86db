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
    """Krum and multi-Krum: the updates that lie nearest to most others (Blanchard et al. 2017, section 4).

    The score of an update is the sum of its squared distances from the n - f - 2 others nearest to it, all tensors
    together, where n updates came and f = `attackers`. Krum takes the update of the smallest score (keep = 1);
    multi-Krum the unweighted mean of the `keep` smallest. Of equal scores the first client's counts. A round needs
    n >= 2 f + 3 updates, and no fewer than `keep`.

    An embedding row that a client does not hold counts as unchanged. The metric `krum_client` is the client of the
    smallest score, `krum_kept` the number of updates whose mean was taken.

    Memory: all updates of the round, in float32. Time: n^2 / 2 times the number of coordinates."""

    name: Literal["krum"] = "krum"
    attackers: int = Field(1, ge=0, description="f: number of updates that may be anything")
    keep: PositiveInt = Field(1, description="m: number of updates whose mean is taken; 1: Krum, more: multi-Krum")
    secure = "it reads the distances between updates, which secure aggregation would hide"

    def problem(self, updates: int) -> str:
        needed = 2 * self.attackers + 3
        if updates < needed:
            return (
                f"server.aggregation.attackers: krum against {self.attackers} needs {needed} updates in a round, and "
                f"there are {updates}: set fewer attackers, or have more clients take part"
            )
        if updates < self.keep:
            return f"server.aggregation.keep: {self.keep} updates are asked for, and there are {updates}: set fewer"
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
        """Return the score of each update: [K].

        Args:
            squares_KK: Squared distances of each two, with zeros on the diagonal.
        """
        apart_KK = squares_KK.copy()
        np.fill_diagonal(apart_KK, np.inf)
        apart_KK.sort(1)
        return apart_KK[:, : len(apart_KK) - self.attackers - 2].sum(1)
