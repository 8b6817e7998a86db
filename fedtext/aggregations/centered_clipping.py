"""Centered clipping (Karimireddy et al. 2021, Learning from History for Byzantine Robust Optimization, algorithm 2).

Legend: K updates, R rows of a tensor, N entries of a row.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedtext.aggregations.base import IndividualAggregation, Kept, State, Weight, samples
from fedtext.aggregations.update_set import UpdateSet, moved
from fedtext.messages import Update

Point = dict[str, NDArray[np.float64]]


class CenteredClipping(IndividualAggregation):
    """Mean of the updates, each clipped around the aggregate of the round before (Karimireddy et al. 2021).

    From the centre v, which is the last round's aggregate and at first 0, an iteration is v <- v + sum_k w_k (delta_k -
    v) min(1, radius / ||delta_k - v||) / sum_k w_k, with w_k = n_k or 1 (`server.weights`; the paper's is `uniform`).
    The norm is L2, over all tensors together. The last v is the aggregate, by which parameters move and which the
    server keeps. An update moves v by no more than its share of `radius` in an iteration.

    The paper's clients send momentum of their gradients, against attackers that all rounds have the same direction;
    here they send what the method has them send.

    An embedding row that a client does not have counts as unchanged, so that it pulls v to 0 there. The metric
    `centered_scaled` is the share of updates that were farther than `radius` from v in the last iteration.

    Memory: all updates of the round and v in float32, and two points in float64. An iteration passes over the updates
    twice."""

    name: Literal["centered_clipping"] = "centered_clipping"
    weighted = True
    radius: float = Field(
        gt=0, description="tau: the largest L2 distance from the centre at which an update counts in full"
    )
    iterations: PositiveInt = Field(
        1, description="L: number of iterations in a round, each from the last one's centre"
    )
    secure = (
        "an iteration is a mean of clipped differences, which secure aggregation could take if clients received the "
        "centre, clipped their updates around it themselves, and proved that they did"
    )

    def server_state(self, shared: State, clients: int) -> Kept:
        return {name: np.zeros_like(tensor) for name, tensor in shared.items()}

    def server_step(
        self, server: Kept, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float], Kept]:
        held = UpdateSet(state, updates)
        share_K = np.array([weight(update) for update in held.updates], np.float64)
        share_K /= share_K.sum()
        centre = {name: server[name].astype(np.float64) for name in held.state}  # of what was sent; the rest stays
        for _ in range(self.iterations):
            distance_K = held.distances(centre)
            centre = _pulled(held, centre, share_K * (self.radius / np.maximum(distance_K, self.radius)))
        following = {**server, **{name: tensor.astype(np.float32) for name, tensor in centre.items()}}
        scaled = float((distance_K > self.radius).mean())  # before the last iteration
        return moved(state, centre), {"centered_scaled": scaled}, following


def _pulled(held: UpdateSet, centre: Point, pull_K: NDArray[np.float64]) -> Point:
    """Return v + sum_k pull_k (delta_k - v). The centre v is used up."""
    after, left = held.combined(partial(np.einsum, "k,krn->rn", pull_K)), 1 - pull_K.sum()
    for name, change in after.items():
        centre[name] *= left
        change += centre[name]
    return after
