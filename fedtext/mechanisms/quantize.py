"""One random bit in place of each coordinate (RR-LDP paper, equation 3)."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.accounting.entry import Bound, Entry, Sent
from fedtext.mechanisms.base import Mechanism, Tensors
from fedtext.mechanisms.draws import bernoulli


class Quantize(Mechanism):
    """One-bit stochastic quantization (RR-LDP paper): sends a random bit for each coordinate of an update.

    A coordinate v is clipped to [-q, q], and its bit is 1 with probability (v + q) / 2q. The server decodes 1 as q and
    0 as -q, which is the clipped coordinate in expectation. By itself it guarantees nothing: at -q and q the bit is
    certain.
    """

    name: Literal["quantize"] = "quantize"
    q: float = Field(
        0.001, ge=1e-30, description="bound of a coordinate; with Adam about its lr, by which a step moves each weight"
    )
    randomises = True
    bits = True

    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        return self.draw(delta, 0.0, rng)

    def draw(self, delta: Tensors, flip: float, rng: np.random.Generator) -> Tensors:
        """Draw the bits, each flipped with probability ``flip``, in a single draw.

        A bit is 1 with probability 1/2 + (1 - 2 flip) v / 2q, kept between ``flip`` and 1 - ``flip``.

        Args:
            delta: The update v, by name.
            flip: Probability with which randomised response flips a bit; 0: it is not applied.
            rng: Source of random numbers.
        """
        slope = (1 - 2 * flip) / (2 * self.q)
        return {name: bernoulli(tensor, slope, flip, rng) for name, tensor in delta.items()}

    def restore(self, sent: Tensors, received: Mapping[str, NDArray[np.float32]]) -> Tensors:
        q = np.float32(self.q)
        return {name: tensor * (2 * q) - q for name, tensor in sent.items()}

    def rescales(self, left: Tensors | None) -> bool:
        """Return True: coordinates beyond ``q`` are decoded as ``q`` in expectation."""
        return True

    def guarantee(self, before: Bound, sent: Sent) -> list[Entry]:
        return [Entry(self.name, "run", None, 0.0, "no guarantee: a bit may be certain")]
