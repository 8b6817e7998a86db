"""Gaussian noise on everything that is sent (KTEPS paper, section 5.2: sigma = 0.01 on every uploaded parameter)."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.mechanisms.base import Mechanism, Tensors


class Gaussian(Mechanism):
    """Adds N(0, sigma^2) to every number. By itself it guarantees nothing: without a ``clip`` before it an update has
    no bounded size that the noise could hide."""

    name: Literal["gaussian"] = "gaussian"
    sigma: float = Field(0.01, gt=0)
    randomises = True
    takes_whole = True

    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        sigma, noisy = np.float32(self.sigma), {}
        for name, tensor in delta.items():
            noise = rng.standard_normal(tensor.shape, dtype=np.float32)
            noise *= sigma
            noise += tensor
            noisy[name] = noise
        return noisy
