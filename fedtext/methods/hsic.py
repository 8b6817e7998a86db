"""Gaussian kernels of a batch's features, and the dependence of two such kernels (KTEPS paper, equation 7).

Legend: B batch, F features.
"""

from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from fedtext.methods.native_kteps import NativeHSIC
from fedtext.models.functions import MappedFunction

Bandwidth = float | Literal["median"]


def hsic(o_s_BF: Tensor, o_p_BF: Tensor, bandwidth: Bandwidth = "median", native: bool = False) -> Tensor:
    """Compute the empirical HSIC, (B-1)^-2 Tr(L_s H L_p H) with H = I - 1/B (equation 7; the printed L_* is L_s).

    Args:
        o_s_BF: Projected features of the shared branch.
        o_p_BF: Projected features of the private branch.
        bandwidth: b of the kernel, as in ``gram``.
        native: Whether the engine is ``native``: this gradient cannot be differentiated then.
    """
    if native:
        return NativeHSIC.apply(o_s_BF, o_p_BF, 0.0 if bandwidth == "median" else bandwidth)[0]
    return HSIC.apply(o_s_BF, o_p_BF, bandwidth)[0]


def squared_distances(features_BF: Tensor) -> Tensor:
    """Compute the squared distances of all pairs, shape (B, B)."""
    features_BF = features_BF - features_BF.mean(0)  # the same distances, without cancellation of large squares
    products_BB = features_BF @ features_BF.T
    squares_B = products_BB.diagonal()
    return (squares_B[:, None] + squares_B[None, :] - 2 * products_BB).clamp_min(0)


def gram(features_BF: Tensor, bandwidth: Bandwidth) -> Tensor:
    """Compute the Gaussian kernel exp(-d^2 / b) of all pairs, shape (B, B).

    With ``median``, b is the median squared distance between two different samples of the batch, detached. A fixed b
    far below it would make the Gram matrix the identity, and its gradient zero.
    """
    distances_BB = squared_distances(features_BF)
    return torch.exp(distances_BB * _slope(distances_BB, bandwidth))


def _slope(distances_BB: Tensor, bandwidth: Bandwidth) -> Tensor:
    """Return -1/b."""
    if bandwidth != "median":
        return distances_BB.new_full((), -1 / bandwidth)
    pairs = _pairs(len(distances_BB), distances_BB.device)
    return -1 / distances_BB.detach().flatten().index_select(0, pairs).median().clamp_min(1e-12)


@cache
def _pairs(size: int, device: torch.device) -> Tensor:
    """Return the places of all pairs of different samples, each once, in a flat (B, B)."""
    first, second = torch.triu_indices(size, size, offset=1, device=device)
    return first * size + second


def _centre(gram_BB: Tensor) -> Tensor:
    """Compute H L H: subtract the means of rows and columns."""
    return gram_BB - gram_BB.mean(0, keepdim=True) - gram_BB.mean(1, keepdim=True) + gram_BB.mean()


class HSIC(MappedFunction):
    """``hsic``, with the gradient that autograd would take twice as long to derive from some thirty operations.

    Further outputs are kept for the backward pass: of each branch the kernel, and its derivative by the distances
    divided by the kernel, -1/b.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(o_s_BF: Tensor, o_p_BF: Tensor, bandwidth: Bandwidth) -> tuple[Tensor, ...]:
        kernels, slopes = [], []
        for features_BF in (o_s_BF, o_p_BF):
            distances_BB = squared_distances(features_BF)
            slopes.append(_slope(distances_BB, bandwidth))
            kernels.append(torch.exp(distances_BB * slopes[-1]))
        value = (_centre(kernels[0]) * kernels[1]).sum() / (len(o_s_BF) - 1) ** 2
        return value, *kernels, *slopes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:2], *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        features, kernels, slopes = (ctx.saved_tensors[start : start + 2] for start in (0, 2, 4))
        if torch.is_grad_enabled():  # this gradient will be differentiated, and the kernels with it
            kernels = [_kernel(each, slope) for each, slope in zip(features, slopes, strict=True)]
        grads = []
        for features_BF, kernel_BB, slope, other_BB in zip(features, kernels, slopes, reversed(kernels), strict=True):
            scale = upstream * slope * (4 / (len(kernel_BB) - 1) ** 2)
            by_distance_BB = _centre(other_BB) * kernel_BB * scale  # d |x_i - x_j|^2 / d x_i = 2 (x_i - x_j)
            features_BF = features_BF - features_BF.mean(0)  # without cancellation, as in ``squared_distances``
            grads.append(by_distance_BB.sum(1, keepdim=True) * features_BF - by_distance_BB @ features_BF)
        return *grads, None


def _kernel(features_BF: Tensor, slope: Tensor) -> Tensor:
    return torch.exp(squared_distances(features_BF) * slope)
