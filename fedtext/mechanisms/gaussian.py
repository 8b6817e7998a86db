"""Gaussian noise on all coordinates that are sent (KTEPS paper, section 5.2: sigma = 0.01 on uploaded parameters)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fedtext.accounting.entry import Bound, Entry, Sent
from fedtext.accounting.gaussian import FLOATS, gaussian_entry
from fedtext.mechanisms.base import Mechanism, Tensors

LARGEST = 3e38  # sigma is a number of float32 up to here; draws beyond it are refused as updates


class Gaussian(Mechanism):
    """Gaussian noise: adds N(0, sigma^2) to every coordinate of an update.

    By itself it guarantees nothing: without a ``clip`` before it the norm of an update is unbounded, and no noise can
    hide it.
    """

    name: Literal["gaussian"] = "gaussian"
    sigma: float = Field(0.01, gt=0, description="standard deviation of the noise on a coordinate")
    randomises = True
    takes_whole = True

    @field_validator("sigma")
    @classmethod
    def _is_drawn(cls, value: float) -> float:
        if value > LARGEST:
            raise ValueError(f"{value:g} is beyond float32, in which noise is drawn: write a smaller one")
        return value

    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        sigma, noisy = np.float32(self.sigma), {}
        for name, tensor in delta.items():
            noise = rng.standard_normal(tensor.shape, dtype=np.float32)
            noise *= sigma
            noise += tensor
            noisy[name] = noise
        return noisy

    @property
    def deviation(self) -> float:
        return self.sigma

    def bound(self, before: Bound) -> Bound:
        return before if before.norm is None else replace(before, variance=before.variance + self.sigma**2)

    def guarantee(self, before: Bound, sent: Sent) -> list[Entry]:
        """Two updates of norm C have a distance of at most 2 C. The variance of noise already in them is added."""
        behind = self.bound(before)
        if behind.norm is None:
            return [Entry(self.name, "run", None, 0.0, f"no guarantee: {behind.why}")]
        multiplier = math.sqrt(behind.variance) / (2 * behind.norm)
        rho = 1 / (2 * multiplier**2) if multiplier**2 else math.inf
        rests = (
            f"updates are 2 clip.norm apart, rho = {rho:.6g} a round (a quarter of that against an update of zeros); "
            + FLOATS
        )
        return [
            gaussian_entry(self.name, "client and round", multiplier, 1.0, 1, sent.delta, rests),
            gaussian_entry(self.name, "run", multiplier, 1.0, sent.rounds, sent.delta, rests),
        ]
