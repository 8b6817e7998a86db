"""Clipping: bounds the influence of one client, relative to which noise is measured."""

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.accounting.entry import Bound
from fedtext.mechanisms.base import Mechanism, Tensors

_ROUNDED = 1e-4  # share of an update's norm that float32 may lose when it is scaled and sent


class Clip(Mechanism):
    """Clipping: bounds the L2 norm of an update.

    The whole update, all tensors together, is multiplied by min(1, norm / ||update||).
    """

    name: Literal["clip"] = "clip"
    norm: float = Field(1.0, gt=0, description="the largest L2 norm of an update, over all its tensors together")

    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        length = _length(delta)
        scale = np.float32(min(1.0, self.norm / length)) if length else np.float32(1)
        return delta if scale == 1 else {name: tensor * scale for name, tensor in delta.items()}

    def bound(self, before: Bound) -> Bound:
        """Noise in the update is clipped with it, and no longer counts as noise."""
        known = before.norm if before.norm is not None and not before.variance else self.norm
        return Bound(min(known, self.norm))

    def rescales(self, left: Tensors | None) -> bool:
        """Return True unless the update is shorter than ``norm``, which shows that it was not clipped."""
        return left is None or _length(left) >= self.norm * (1 - _ROUNDED)


def _length(tensors: Tensors) -> float:
    """The L2 norm over all tensors together."""
    return math.sqrt(sum(float(np.sum(np.square(tensor, dtype=np.float64))) for tensor in tensors.values()))
