"""Output layers, and one sigmoid unit for two classes (RR-LDP paper): losses and evaluations take logits_BC either way.

Of the logits 0 and z softmax is sigmoid(z), and cross-entropy is binary cross-entropy.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad


def two_logits(unit_B1: Tensor) -> Tensor:
    """z -> (0, z), the logits of classes 0 and 1."""
    return pad(unit_B1, (1, 0))


class TwoLogits(nn.Module):
    """``two_logits`` as a layer without parameters."""

    def forward(self, unit_B1: Tensor) -> Tensor:
        return two_logits(unit_B1)


def mlp(*sizes: int, sigmoid: bool = False) -> nn.Sequential:
    """G: fully connected layers with ReLU between them (equation 4)."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([TwoLogits()] if sigmoid else []))
