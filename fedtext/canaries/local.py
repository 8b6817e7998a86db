"""Canaries under mechanisms of the uplink: what each sends is searched for its direction.

A local guarantee holds against the server, for any two data sets of a client. A canary sends its direction or the
opposite in every round, and the server adds up how far what it receives points there. Nothing of it is aggregated.

Legend: K canaries.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedtext.canaries.base import PREFIX, CanaryClients
from fedtext.canaries.plan import Plan, product
from fedtext.layout import Layout
from fedtext.state.noise_key import NoiseKey

_SCORES = PREFIX + "scores"


class LocalCanaries(CanaryClients):
    """Canaries that send, and are not aggregated.

    Args:
        plan: Which canaries there are.
        noise: The run's key.
        layout: The shared tensors.
        withheld: Rows of the table that no client sends; None: there are none.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.
    """

    def __init__(
        self,
        plan: Plan,
        noise: NoiseKey,
        layout: Layout,
        withheld: NDArray[np.int64] | None,
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        super().__init__(plan, noise, layout, withheld)
        self.scores_K = np.array((kept or {}).get(_SCORES, np.zeros(len(plan), np.float32)))

    def observe(self, before: NDArray[np.float32], after: NDArray[np.float32], round_: int) -> None:
        shared = self.layout.views(before)
        for canary, inside in enumerate(self.plan.inside_K):
            sent = self._sent(canary, 1.0 if inside else -1.0, before, round_)
            self.scores_K[canary] += product(self.plan.direction(canary, shared), dict(sent.tensors))

    def scores(self) -> NDArray[np.float64]:
        return self.scores_K.astype(np.float64)

    def to_keep(self) -> Mapping[str, NDArray[np.float32]]:
        return {_SCORES: self.scores_K}
