"""Updates with the opposite sign."""

from typing import Literal

import numpy as np
from pydantic import Field

from fedtext.adversaries.base import Attack, Tensors, times


class SignFlip(Attack):
    """Adversaries send their update with the opposite sign: -factor delta_k (Li et al. 2019, RSA, section 5)."""

    name: Literal["sign_flip"] = "sign_flip"
    factor: float = Field(1.0, gt=0, description="length of what is sent, as a multiple of the update's")

    def send(self, delta: Tensors, draws: np.random.Generator) -> Tensors:
        return times(delta, -self.factor)
