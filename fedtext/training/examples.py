"""Steps along the noised sum of the clipped gradients of single texts: DP-SGD (Abadi et al. 2016).

The gradient of a batch of B texts is (sum_i g_i min(1, C / ||g_i||) + z C xi) / B, where g_i is the gradient of the
objective of text i alone, over all parameters that move, C the largest norm, z the noise multiplier and xi standard
normal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedtext.errors import UserError


@dataclass
class ExampleNoise:
    """The clipping and the noise of a client's local update.

    Attributes:
        norm: C.
        multiplier: z.
        rng: Source of the noise.
    """

    norm: float
    multiplier: float
    rng: np.random.Generator

    def add(self, total: list[Tensor] | None, gradient: Sequence[Tensor]) -> list[Tensor]:
        """Add the clipped gradient of a text to the sum of those before it, in place.

        Args:
            total: The sum; None: there is none yet.
            gradient: The gradient at each parameter.

        Returns:
            The sum.

        Raises:
            UserError: The gradient is not finite.
        """
        length = float(torch.stack(torch._foreach_norm(list(gradient))).double().norm())
        if not np.isfinite(length):
            raise UserError("the gradient of a text is not finite: lower training.optimizer.lr")
        scale = min(1.0, self.norm / length) if length else 1.0
        scaled = torch._foreach_mul(list(gradient), scale)
        if total is None:
            return list(scaled)
        torch._foreach_add_(total, scaled)
        return total

    def noised(self, total: Sequence[Tensor], texts: int) -> list[Tensor]:
        """Return the gradient of a batch.

        Args:
            total: The sum of its texts' clipped gradients.
            texts: B.
        """
        found, deviation = [], self.multiplier * self.norm
        for part in total:
            noise = torch.from_numpy(self.rng.standard_normal(tuple(part.shape)) * deviation)
            found.append(((part.double() + noise.to(part.device)) / texts).to(part.dtype))
        return found
