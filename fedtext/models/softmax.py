"""Cross-entropy over a large vocabulary, with its gradient, for a few tokens at a time.

The usual implementation keeps V logits for every token until the backward pass, and reads or writes them about ten
times. Here the logits of a chunk of tokens are computed, converted to their gradient in place, multiplied, and
overwritten by those of the next chunk while they are still in the cache. This requires the weight of each token's loss,
``weights_S``, in the forward pass.

Legend: S tokens, R tokens of a chunk, H features, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedtext.models.functions import first_order
from fedtext.models.native_products import write_product

# Logits of a chunk. Smaller chunks slow down the products, each of which reads all weights; larger ones do not fit in
# the cache. Between 2 and 7 million the difference is about 3 % (10,000 x 300 weights, one core). On a GPU, which is
# faster with large products, it only bounds the memory.
CHUNK = {"cpu": 3_500_000, "cuda": 50_000_000}

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def nats(
    hidden_SH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    targets_S: Tensor,
    weights_S: Tensor,
    native: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute -log softmax(hidden weight^T + bias)[target] of each token, in nats.

    Args:
        hidden_SH, weight_VH, bias_V: Inputs and parameters of the output layer.
        targets_S: Index of the target of each token.
        weights_S: Weight of each token in the objective, a constant.
        native: Whether the engine is ``native``, and the products are those of models/products.c.

    Returns:
        The sum weighted by ``weights_S``, and the nats of each token, detached.
    """
    return CrossEntropy.apply(hidden_SH, weight_VH, bias_V, targets_S, weights_S, native)


def ranked(
    hidden_SH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_S: Tensor, native: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute the nats of each token, and the ranks of its target, without a gradient.

    Args:
        hidden_SH, weight_VH, bias_V, targets_S, native: As in ``nats``.
    """
    ranks_S = torch.empty_like(targets_S)
    nats_S, _ = _by_chunks((hidden_SH, weight_VH, bias_V, targets_S, None), (False, False, False), native, ranks_S)
    return nats_S, ranks_S


def ranks(logits_SV: Tensor, targets_S: Tensor) -> Tensor:
    """Count the other words that are at least as probable as the target, from 0.

    A tie counts against the target, or else a model with equal logits would always be right. So does NaN.
    """
    less_SV = logits_SV < logits_SV.gather(1, targets_S[:, None])
    return logits_SV.shape[1] - 1 - less_SV.sum(1)


class CrossEntropy(Function):
    """``nats``. Gradients are computed in the forward pass; the backward pass returns them, scaled in place."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        *inputs, ctx.native = arguments
        nats_S, ctx.gradients = _by_chunks(inputs, ctx.needs_input_grad[:3], ctx.native)
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(nats_S)
        return inputs[-1].dot(nats_S), nats_S

    @staticmethod
    @first_order
    def backward(ctx: Any, upstream: Tensor, unused: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second pass through a retained graph: the first gradients have been given away
            _, gradients = _by_chunks(ctx.saved_tensors, ctx.needs_input_grad[:3], ctx.native)
        for gradient in gradients:
            if gradient is not None:
                gradient.mul_(upstream)
        return *gradients, None, None, None


def _by_chunks(
    inputs: Sequence[Any], wanted: tuple[bool, bool, bool], native: bool, ranks_S: Tensor | None = None
) -> tuple[Tensor, Gradients]:
    """Compute nats_S, and the gradients ``wanted`` of their weighted sum for hidden_SH, weight_VH and bias_V.

    The ranks of tokens are written to ``ranks_S``, if it is given. Probabilities are never divided by their sum:
    instead of V numbers of a token the H numbers are divided with which these are multiplied.
    """
    hidden_SH, weight_VH, bias_V, targets_S, weights_S = inputs
    tokens, vocabulary = len(hidden_SH), len(weight_VH)
    chunks = max(1, -(-tokens * vocabulary // CHUNK.get(hidden_SH.device.type, CHUNK["cuda"])))
    rows = max(1, -(-tokens // chunks))
    workspace_RV = hidden_SH.new_empty(rows, vocabulary)
    nats_S = hidden_SH.new_empty(tokens)
    grad_hidden_SH = torch.empty_like(hidden_SH) if wanted[0] else None
    grad_weight_VH = weight_VH.new_empty(weight_VH.shape) if wanted[1] and native else None
    # transposed, which makes torch's product faster, by a quarter on an AMD EPYC
    grad_weight_HV = weight_VH.new_empty(weight_VH.shape[::-1]) if wanted[1] and not native else None
    grad_bias_V = torch.empty_like(bias_V) if bias_V is not None and wanted[2] else None
    for start in range(0, tokens, rows):
        part = slice(start, start + rows)
        hidden_RH, targets_R1 = hidden_SH[part], targets_S[part, None]
        logits_RV = workspace_RV[: len(hidden_RH)]
        _product(logits_RV, bias_V, hidden_RH, weight_VH.t(), native)
        if ranks_S is not None:
            ranks_S[part] = ranks(logits_RV, targets_R1[:, 0])
        logits_RV.sub_(logits_RV.amax(1, keepdim=True))
        target_R1 = logits_RV.gather(1, targets_R1)
        sum_R1 = logits_RV.exp_().sum(1, keepdim=True)
        torch.sub(sum_R1.log()[:, 0], target_R1[:, 0], out=nats_S[part])
        if not any(wanted):
            continue
        grad_RV = logits_RV.scatter_add_(1, targets_R1, -sum_R1)  # times the weight, and over the sum
        scale_R1 = weights_S[part, None] / sum_R1
        if grad_hidden_SH is not None:
            _product(grad_hidden_SH[part], None, grad_RV, weight_VH, native)
            grad_hidden_SH[part].mul_(scale_R1)
        # the first chunk overwrites what happens to be in memory
        if grad_weight_VH is not None:
            _product(grad_weight_VH, grad_weight_VH if start else None, grad_RV.t(), hidden_RH * scale_R1, native)
        if grad_weight_HV is not None:
            _product(grad_weight_HV, grad_weight_HV if start else None, (hidden_RH * scale_R1).t(), grad_RV, native)
        if grad_bias_V is not None:
            grad_bias_V.addmv_(grad_RV.t(), scale_R1[:, 0], beta=1 if start else 0)
    return nats_S, (grad_hidden_SH, grad_weight_VH if grad_weight_HV is None else _turned(grad_weight_HV), grad_bias_V)


def _product(result_MN: Tensor, addend: Tensor | None, left_MK: Tensor, right_KN: Tensor, native: bool) -> None:
    """Write a product into a matrix, plus the addend, which may be that matrix itself or a row for all of its rows."""
    if native:
        write_product(result_MN, addend, left_MK, right_KN)
    else:
        start = result_MN if addend is None else addend
        torch.addmm(start, left_MK, right_KN, beta=0 if addend is None else 1, out=result_MN)


def _turned(tensor_HV: Tensor) -> Tensor:
    """Transpose to (V, H). On a CPU piece by piece: torch takes twice as long for the whole tensor."""
    turned_VH = tensor_HV.new_empty(tensor_HV.shape[::-1])
    words = 500 if tensor_HV.device.type == "cpu" else len(turned_VH)
    for into, piece in zip(turned_VH.split(words), tensor_HV.split(words, 1), strict=True):
        into.copy_(piece.t())
    return turned_VH
