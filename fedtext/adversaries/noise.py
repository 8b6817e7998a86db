"""Noise instead of updates."""

import math
from typing import Literal

import numpy as np
from pydantic import Field

from fedtext.adversaries.base import Attack, Tensors, times


class Noise(Attack):
    """Adversaries send Gaussian noise instead of their update (Blanchard et al. 2017, section 6).

    Its expected L2 norm is `scale` times that of the update, over all tensors together. A row of the embedding that
    the adversary does not send has none."""

    name: Literal["noise"] = "noise"
    scale: float = Field(10.0, gt=0, description="norm of the noise, as a multiple of the update's")

    def send(self, delta: Tensors, draws: np.random.Generator) -> Tensors:
        squares = math.fsum(float(np.square(values, dtype=np.float64).sum()) for values in delta.values())
        numbers = sum(values.size for values in delta.values())
        noise = {name: draws.standard_normal(values.shape, np.float32) for name, values in delta.items()}
        return times(noise, self.scale * math.sqrt(squares / max(1, numbers)))
