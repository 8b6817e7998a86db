"""Clipping: bounds the influence of one client, relative to which noise is measured."""

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.accounting.entry import Bound
from fedtext.mechanisms.base import Mechanism, Shapes, Tensors
from fedtext.schema import Strict

NORM = "clip/norm"  # the norm of a round, in the broadcast, with ``adaptive``
WITHIN = "clip/within"  # 1/2 beside an update that is within it, else -1/2
_ROUNDED = 1e-4  # share of an update's norm that float32 may lose when it is scaled and sent


class AdaptiveNorm(Strict):
    """A norm that follows a quantile of the norms of clients' updates (Andrew et al. 2021, algorithm 1).

    Each client sends beside its update whether it is within the norm. The server adds noise to their number, and
    multiplies the norm by exp(-lr (share within it - quantile)) for the next round. The noise on the updates is larger,
    so that both together have the guarantee of ``server.noise``.
    """

    quantile: float = Field(0.5, gt=0, lt=1, description="share of the updates that are to be within the norm")
    lr: float = Field(0.2, gt=0, le=10, description="how far the logarithm of the norm moves in a round at most")
    sigma: float | None = Field(
        None,
        gt=0,
        description="standard deviation of the noise on the number of updates within the norm; null: a twentieth of "
        "the expected number of clients",
    )


class Clip(Mechanism):
    """Clipping: bounds the L2 norm of an update.

    The whole update, all tensors together, is multiplied by min(1, norm / ||update||).
    """

    name: Literal["clip"] = "clip"
    norm: float = Field(
        1.0,
        gt=0,
        description="the largest L2 norm of an update, over all its tensors together; with adaptive that of the first "
        "round",
    )
    adaptive: AdaptiveNorm | None = Field(
        None, description="the norm follows those of the updates; needs server.noise; {}: their median; null: it stays"
    )

    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        norm = float(received[NORM][0]) if self.adaptive else self.norm
        length = _length(delta)
        scale = np.float32(min(1.0, norm / length)) if length else np.float32(1)
        clipped = delta if scale == 1 else {name: tensor * scale for name, tensor in delta.items()}
        return clipped | {WITHIN: np.array([0.5 if length <= norm else -0.5], np.float32)} if self.adaptive else clipped

    @property
    def asks(self) -> Shapes:
        return {NORM: (1,)} if self.adaptive else {}

    @property
    def beside(self) -> Shapes:
        return {WITHIN: (1,)} if self.adaptive else {}

    def leaves(self, shapes: Shapes) -> Shapes:
        return {**shapes, **self.beside}

    def bound(self, before: Bound) -> Bound:
        """Noise in the update is clipped with it, and no longer counts as noise. With ``adaptive`` it is the first
        round's."""
        if self.adaptive:
            return Bound(self.norm)
        known = before.norm if before.norm is not None and not before.variance else self.norm
        return Bound(min(known, self.norm))

    def rescales(self, left: Tensors | None) -> bool:
        """Return True unless the update is shorter than ``norm``, which shows that it was not clipped."""
        if left is None:
            return True
        return bool(left[WITHIN][0] < 0) if self.adaptive else _length(left) >= self.norm * (1 - _ROUNDED)


def _length(tensors: Tensors) -> float:
    """The L2 norm over all tensors together."""
    return math.sqrt(sum(float(np.sum(np.square(tensor, dtype=np.float64))) for tensor in tensors.values()))
