"""One sigmoid unit for two classes (RR-LDP paper): every loss and every reading stays one of logits_BC.

Of the logits 0 and z softmax is sigmoid(z), and cross-entropy is binary cross-entropy.
"""

from torch import Tensor, nn
from torch.nn.functional import pad


def two_logits(unit_B1: Tensor) -> Tensor:
    """z -> (0, z), the logits of classes 0 and 1."""
    return pad(unit_B1, (1, 0))


class TwoLogits(nn.Module):
    """``two_logits`` as a layer without parameters."""

    def forward(self, unit_B1: Tensor) -> Tensor:
        return two_logits(unit_B1)
