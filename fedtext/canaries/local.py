"""Canaries under mechanisms of the uplink: what each sends is searched for its direction.

A local guarantee holds against the server, for any two data sets of a client. A canary sends its direction or the
opposite in every round, and the server adds up how far what it receives points there. Nothing of it is aggregated.

Legend: K canaries.
"""

import numpy as np
from numpy.typing import NDArray

from fedtext.canaries.base import CanaryClients
from fedtext.canaries.plan import product


class LocalCanaries(CanaryClients):
    """Canaries that send, and are not aggregated."""

    name = "scores"

    @property
    def size(self) -> int:
        return len(self.plan)

    def observe(self, before: NDArray[np.float32], after: NDArray[np.float32], round_: int) -> None:
        shared = self.layout.views(before)
        for canary, inside in enumerate(self.plan.inside_K):
            sent = self._sent(canary, 1.0 if inside else -1.0, before, round_)
            self.seen[canary] += product(self.plan.direction(canary, shared), dict(sent.tensors))

    def scores(self) -> NDArray[np.float64]:
        return self.seen.astype(np.float64)
