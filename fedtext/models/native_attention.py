"""Engine native: attention within each text in C (models/attention.h).

Legend: B texts, S tokens of all texts, L of one text, N heads, A width of a head, D = N x A.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from fedtext.models.functions import first_order
from fedtext.models.native_transformer import Layout, library
from fedtext.runtime.compiled import BITS, address


class Dropout(NamedTuple):
    """Dropout of a call: it keeps each number whose draw, by its place and a key, is at least a limit (draws.h).

    Attributes:
        share: Factor of the numbers that are kept.
        key: The key, of 64 bits.
        limit: The limit, for draws of 32 bits; 0 keeps all.
    """

    share: float
    key: int
    limit: int

    @classmethod
    def drawn(cls, rate: float) -> "Dropout":
        """Draw a key for a rate of dropout; there is no draw if the rate is 0."""
        if not rate:
            return cls(1.0, 0, 0)
        share = 1 / (1 - rate) if rate < 1 else 0.0
        return cls(share, int(torch.randint(2**63 - 1, ())), min(round(rate * 2**32), 2**32 - 1))


@dataclass(frozen=True)
class Attention:
    """softmax(scale Q K^T) V within each text, for each head.

    Args:
        starts: Index of each text's first token, and at the end S; int64.
        heads: N.
        scale: Factor of the products of queries and keys; positive.
        causal: Whether a token attends only to itself and to those before it.
        dropout: Dropout of the weights.
    """

    starts: Tensor
    heads: int
    scale: float
    causal: bool
    dropout: Dropout

    def outputs(self, query_SD: Tensor, key_SD: Tensor, value_SD: Tensor) -> Tensor:
        """Compute attention.

        Args:
            query_SD, key_SD, value_SD: Of all tokens, contiguous.

        Returns:
            The outputs, shape (S, D).
        """
        output_SD, layout = torch.empty_like(query_SD), self.layout(query_SD.shape[1])
        tensors = query_SD, key_SD, value_SD, _memory(layout, output_SD, 1), output_SD
        library(output_SD.dtype).attend(ctypes.byref(layout), *map(address, tensors))
        return output_SD

    def gradients(
        self, query_SD: Tensor, key_SD: Tensor, value_SD: Tensor, grad_SD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the gradients of the queries, keys and values.

        Args:
            query_SD, key_SD, value_SD: Of all tokens, contiguous.
            grad_SD: The gradients of the outputs, contiguous.
        """
        query, key, value = grad_SD.new_empty(3, *grad_SD.shape).unbind()
        layout = self.layout(grad_SD.shape[1])
        tensors = query_SD, key_SD, value_SD, grad_SD, _memory(layout, grad_SD, 3), query, key, value
        library(grad_SD.dtype).attend_back(ctypes.byref(layout), *map(address, tensors))
        return query, key, value

    def layout(self, width: int) -> Layout:
        """Return attention of a width for C, which has the addresses of these tensors."""
        given = len(self.starts) - 1, self.heads, width // self.heads, self.causal
        return Layout(*given, self.starts.data_ptr(), self.scale, *self.dropout)


class NativeAttention(Function):
    """``Attention`` with its gradients."""

    @staticmethod
    def forward(ctx: Any, query_SD: Tensor, key_SD: Tensor, value_SD: Tensor, attention: Attention) -> Tensor:
        parts = [part.contiguous() for part in (query_SD, key_SD, value_SD)]
        ctx.attention = attention
        ctx.save_for_backward(*parts)
        return attention.outputs(*parts)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_SD: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.attention.gradients(*ctx.saved_tensors, grad_SD.contiguous()), None


def attend(
    query_SD: Tensor,
    key_SD: Tensor,
    value_SD: Tensor,
    starts: Tensor,
    heads: int,
    scale: float,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Compute attention within each text.

    Args:
        query_SD, key_SD, value_SD: Of all texts' tokens, text by text. The columns of a head are next to each other.
        starts, heads, scale, causal: As in ``Attention``.
        dropout: Rate of dropout on the weights.

    Returns:
        The outputs, shape (S, D). They have first derivatives only.
    """
    assert query_SD.dtype == key_SD.dtype == value_SD.dtype
    assert query_SD.dtype in BITS
    assert scale > 0
    assert starts.dtype == torch.int64
    attention = Attention(starts, heads, scale, causal, Dropout.drawn(dropout))
    found: Tensor = NativeAttention.apply(query_SD, key_SD, value_SD, attention)
    return found


def _memory(layout: Layout, like: Tensor, matrices: int) -> Tensor:
    """Return memory for a number of matrices of weights."""
    return like.new_empty(library(like.dtype).attention_memory(ctypes.byref(layout), matrices))
