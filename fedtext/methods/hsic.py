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
EQUAL = 1e-13  # squared distance of two samples that are equal up to rounding, in units of their squares
NARROWEST = 1e-9  # least bandwidth, in units of the mean square of a batch's features


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
    """Compute the squared distances of all pairs, shape (B, B), in float64.

    Samples that are equal up to rounding have distance 0. In float32 the products would leave them one of rounding,
    which a narrow kernel would take for all that there is.
    """
    features_BF = _centred(features_BF)
    products_BB = features_BF @ features_BF.T
    squares_B = products_BB.diagonal()
    sums_BB = squares_B[:, None] + squares_B[None, :]
    distances_BB = sums_BB - 2 * products_BB
    return distances_BB.masked_fill(distances_BB <= EQUAL * sums_BB, 0)


def narrowest(features_BF: Tensor) -> Tensor:
    """Return the least b of a kernel whose b is taken from the batch, in float64 and detached.

    Where samples are equal up to the rounding of what computed them, a kernel as narrow as these differences would have
    gradients of any size.
    """
    return NARROWEST * features_BF.detach().double().square().sum(1).mean() + 1e-12


def _centred(features_BF: Tensor) -> Tensor:
    """Return features less their mean, in float64: the same distances, without cancellation of large squares."""
    features_BF = features_BF.double()
    return features_BF - features_BF.mean(0)


def gram(features_BF: Tensor, bandwidth: Bandwidth) -> Tensor:
    """Compute the Gaussian kernel exp(-d^2 / b) of all pairs, shape (B, B), in float64.

    With ``median``, b is the median squared distance between two different samples of the batch, and at least
    ``narrowest``, detached. A fixed b far below it would make the Gram matrix the identity, and its gradient zero.
    """
    distances_BB = squared_distances(features_BF)
    return torch.exp(distances_BB * _slope(features_BF, distances_BB, bandwidth))


def _slope(features_BF: Tensor, distances_BB: Tensor, bandwidth: Bandwidth) -> Tensor:
    """Return -1/b."""
    if bandwidth != "median":
        return distances_BB.new_full((), -1 / bandwidth)
    pairs = _pairs(len(distances_BB), distances_BB.device)
    median = distances_BB.detach().flatten().index_select(0, pairs).median()
    return -1 / torch.maximum(median, narrowest(features_BF))


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
            slopes.append(_slope(features_BF, distances_BB, bandwidth))
            kernels.append(torch.exp(distances_BB * slopes[-1]))
        value = (_centre(kernels[0]) * kernels[1]).sum() / (len(o_s_BF) - 1) ** 2
        value = value.clamp(min=0)  # it is never negative, but by rounding where all distances are far below b
        return value.to(o_s_BF.dtype), *kernels, *slopes

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
            by_distance_BB = by_distance_BB.masked_fill(kernel_BB == 1, 0)  # x_i = x_j, but for rounding
            centred_BF = _centred(features_BF)
            grad_BF = by_distance_BB.sum(1, keepdim=True) * centred_BF - by_distance_BB @ centred_BF
            grads.append(grad_BF.to(features_BF.dtype))
        return *grads, None


def _kernel(features_BF: Tensor, slope: Tensor) -> Tensor:
    return torch.exp(squared_distances(features_BF) * slope)
