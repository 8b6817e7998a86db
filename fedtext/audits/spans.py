"""The space of a linear layer's inputs, from a received update of its weights.

The gradient of weights that multiply vectors x is sum delta x^T: its rows lie in the span of the x (first_layer.py). A
received update is such a sum and noise: rounding of weights in float32, and what mechanisms add. Noise of standard
deviation s on each of m x n coordinates has singular values up to about s (sqrt(m) + sqrt(n)), the edge of the
Marchenko-Pastur distribution (and, of finite matrices, a little beyond: Johnstone 2001). Only singular values beyond it
say anything about the inputs. A direction of singular value v is known up to an angle of about edge / v, and counts
accordingly.

If there are fewer inputs than dimensions, all singular values after those of the inputs are noise, whatever its source:
several local steps at moving weights, dropout, an unknown mechanism. The edge is then at least the first of them.

Legend: M vectors, D their dimension, S directions, K places of texts, R rows of weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedtext.mechanisms.base import Mechanism
from fedtext.seeding import generator

_TRACY_WIDOM = 2.0234  # the 0.99 quantile of the Tracy-Widom distribution of order 1
_ARITHMETIC = 1e-6  # rounding of a gradient's own sums, as a share of its largest singular value
_COARSE = 64  # random sums by which shares are estimated
_CERTAIN = 1e-4  # weight below which a direction is certain to be one of the inputs


@dataclass(frozen=True)
class Span:
    """The directions in which inputs of a layer do not lie.

    Attributes:
        tests_SD: These directions, each times the square root of its weight: 1 if noise alone explains it.
        rank: Number of directions that stand out from the noise.
    """

    tests_SD: Tensor
    rank: int

    @property
    def free(self) -> float:
        """The share of all directions that no input has: if it is 0, every vector lies in the span."""
        return 1 - self.rank / self.tests_SD.shape[1]

    def outside(self, inputs_MD: Tensor) -> Tensor:
        """Return the share of each vector's length that lies outside of the span; 1 for vectors of zeros.

        Args:
            inputs_MD: Vectors, with any leading axes.
        """
        return ((inputs_MD @ self.tests_SD.T).norm(dim=-1) / inputs_MD.norm(dim=-1)).nan_to_num(1.0)

    def near(self, inputs_MD: Tensor, limit: float) -> Tensor:
        """Return the shares as ``outside`` does, but estimates, by a few random sums of the directions, of those that
        are far above a limit.

        Args:
            inputs_MD: Vectors.
            limit: Shares up to this are exact, but for a chance of 1e-4 or so that one is missed.
        """
        if len(self.tests_SD) <= 2 * _COARSE:
            return self.outside(inputs_MD)
        coarse = generator(0, "audits/spans").standard_normal((_COARSE, len(self.tests_SD)), np.float32)
        rough = Span(torch.from_numpy(coarse) @ self.tests_SD / math.sqrt(_COARSE), self.rank)
        shares_M = rough.outside(inputs_MD)
        close_M = shares_M < 1.5 * limit
        shares_M[close_M] = self.outside(inputs_MD[close_M])
        return shares_M


def span(update: Tensor, std: float, inputs: int) -> Span:
    """Compute the span of a layer's inputs.

    Args:
        update: Received updates of weights with the same inputs, stacked, shape (R, D).
        std: Standard deviation of the noise on a coordinate.
        inputs: Largest number of inputs: tokens of all texts behind the update.
    """
    rows, dim = update.shape
    _, values, directions_SD = torch.linalg.svd(update.double(), full_matrices=False)
    edge = max(std * largest(rows, dim), _ARITHMETIC * float(values[0]))
    if inputs < len(values):
        edge = max(edge, float(values[inputs]))
    weights = (edge / values.clamp_min(1e-300)).clamp(max=1).square()
    kept = weights > _CERTAIN
    rank = int((values > edge).sum()) if edge else 0
    return Span((directions_SD * weights.sqrt()[:, None])[kept].float(), rank)


def largest(rows: int, dim: int) -> float:
    """Return the singular value that independent standard normal noise of this shape exceeds in 1 % of the cases.

    Johnstone (2001, theorem 1.1): its square has mean (sqrt(m) + sqrt(n))^2 and Tracy-Widom's deviations from it, in
    units of (sqrt(m) + sqrt(n)) (1 / sqrt(m) + 1 / sqrt(n))^(1/3).
    """
    both = math.sqrt(rows) + math.sqrt(dim)
    return math.sqrt(both**2 + _TRACY_WIDOM * both * (rows**-0.5 + dim**-0.5) ** (1 / 3))


def deviation(updates: Sequence[Tensor], received: Sequence[Tensor], steps: int, uplink: Sequence[Mechanism]) -> float:
    """Compute the standard deviation of the noise on a coordinate of received updates, as far as it is known.

    A weight w that a step changes is rounded to a multiple of its unit in the last place, ulp(w): an error of variance
    ulp(w)^2 / 12. Mechanisms state what they add. A mechanism that leaves one bit of each coordinate leaves little but
    noise, whose size is that of the decoded coordinates.

    Args:
        updates: Updates of the weights, as the server decodes them.
        received: The weights before training.
        steps: Number of local steps.
        uplink: The mechanisms.
    """
    if any(mechanism.bits for mechanism in uplink):
        return float(torch.cat([update.flatten() for update in updates]).double().square().mean().sqrt())
    sizes = torch.cat([weights.flatten() for weights in received]).abs()
    units = torch.nextafter(sizes, torch.tensor(math.inf)) - sizes
    rounding = steps * float(units.double().square().mean()) / 12
    return math.sqrt(rounding + sum(mechanism.deviation**2 for mechanism in uplink))
