"""The norm of ``clip.adaptive``, which follows a quantile of the norms of clients' updates (Andrew et al. 2021)."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedtext.layout import ALIGN
from fedtext.mechanisms.clip import NORM, AdaptiveNorm

PREFIX = "#"  # of its tensor among those of the server's optimizer, in a checkpoint
_LEAST, _LARGEST = 1e-12, 1e12  # bounds of a norm, far from those of float32


class ClipNorm:
    """The norm of each round.

    Args:
        config: How it adapts.
        first: That of the first round.
        sigma: Standard deviation of the noise on the share of updates that are within the norm.
        kept: The tensors that ``to_keep`` returned after an earlier round; empty: the run begins.
    """

    def __init__(
        self, config: AdaptiveNorm, first: float, sigma: float, kept: Mapping[str, NDArray[np.float32]]
    ) -> None:
        self.config, self.first, self.sigma = config, first, sigma
        # what clients receive is a float32, and the noise is scaled by the same number
        self.norm = np.float32(kept[PREFIX + NORM][0] if PREFIX + NORM in kept else first)
        self.metrics: dict[str, float] = {}  # of the last round

    @property
    def growth(self) -> float:
        """The norm, as a multiple of the first round's."""
        return float(self.norm) / self.first

    def step(self, noised: float) -> None:
        """Compute the next round's norm: C <- C exp(-lr (b - quantile)), where b is the noised share within C.

        Noise may bring b - quantile beyond -1 and 1, which are put in its place.

        Args:
            noised: Sum over the round's clients of 1/2 if their update is within the norm and -1/2 if not, divided by
                the expected number of clients, with noise of deviation ``sigma``.
        """
        share = noised + 0.5
        self.metrics = {"clip_norm": float(self.norm), "clip_within": float(share)}
        moved = float(self.norm) * math.exp(-self.config.lr * min(max(share - self.config.quantile, -1.0), 1.0))
        self.norm = np.float32(min(max(moved, _LEAST), _LARGEST))

    def after(self, flat_N: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the broadcast, followed by the norm."""
        behind = np.zeros(ALIGN, np.float32)
        behind[0] = self.norm
        return np.concatenate([flat_N, behind])

    def to_keep(self) -> dict[str, NDArray[np.float32]]:
        """Return the tensors for a checkpoint."""
        return {PREFIX + NORM: np.array([self.norm], np.float32)}
