"""Output layers. One sigmoid unit for two classes (RR-LDP paper) returns logits_BC as well.

The softmax of the logits 0 and z is sigmoid(z), and their cross-entropy is binary cross-entropy.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad

from fedtext.models.plain import is_plain


def two_logits(unit_B1: Tensor) -> Tensor:
    """Return the logits (0, z) of classes 0 and 1, shape (B, 2), for units z of shape (B, 1)."""
    return pad(unit_B1, (1, 0))


class TwoLogits(nn.Module):
    """``two_logits`` as a layer without parameters."""

    def forward(self, unit_B1: Tensor) -> Tensor:
        return two_logits(unit_B1)


def mlp(*sizes: int, sigmoid: bool = False) -> nn.Sequential:
    """Build G: fully connected layers with ReLU between them (KTEPS paper, equation 4).

    Args:
        sizes: Widths of the input and of each layer's output.
        sigmoid: Whether the last layer has one unit, whose output becomes the logits of two classes.
    """
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([TwoLogits()] if sigmoid else []))


def layers_between_relus(head: nn.Module) -> list[Tensor] | None:
    """Return weight and bias of each layer of G; None if it is not fully connected layers with ReLU between them.

    Nor is it that if its output, a single unit, becomes the logits of two classes, if a class of its own or a hook
    computes the output of G or of a layer, or if a layer has another width than the one before it, as torch then says.
    """
    layers = list(head.children())
    relus = all(is_plain(layer, nn.ReLU) for layer in layers[1::2])
    linear = [layer for layer in layers[::2] if is_plain(layer, nn.Linear) and layer.bias is not None]
    if not is_plain(head, nn.Sequential) or not relus or len(layers) != 2 * len(linear) - 1:
        return None
    if any(before.out_features != layer.in_features for before, layer in pairwise(linear)):
        return None
    return [tensor for layer in linear for tensor in (layer.weight, layer.bias)]
