"""Updates that outweigh those of others."""

from typing import Literal

import numpy as np
from pydantic import Field

from fedtext.adversaries.base import Attack, Tensors, times


class Scaled(Attack):
    """Adversaries send factor delta_k: their own texts outweigh those of others.

    With a factor of the number of clients in a round, one adversary alone replaces the shared model by its own
    (Bagdasaryan et al. 2020, How to backdoor federated learning, equation 3)."""

    name: Literal["scaled"] = "scaled"
    factor: float = Field(10.0, gt=0, description="gamma: multiple of the update that is sent")

    def send(self, delta: Tensors, draws: np.random.Generator) -> Tensors:
        return times(delta, self.factor)
