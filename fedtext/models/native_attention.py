"""Engine native: attention within each text in C (models/attention.c).

Legend: B texts, S tokens of all texts, L of one text, N heads, A width of a head, D = N x A.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fedtext.runtime.compiled import BITS, address, compiled

SOURCE = Path(__file__).with_name("attention.c")


class _Layout(ctypes.Structure):
    """``layout`` of models/attention.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("texts", "heads", "width", "causal")),
        *((name, ctypes.c_void_p) for name in ("starts", "kept")),
        *((name, ctypes.c_double) for name in ("scale", "share")),
    ]


class NativeAttention(Function):
    """softmax(scale Q K^T) V within each text, for each head; arguments as in ``attend``."""

    @staticmethod
    def forward(
        ctx: Any,
        query_SD: Tensor,
        key_SD: Tensor,
        value_SD: Tensor,
        starts: Tensor,
        heads: int,
        scale: float,
        dropout: float,
        causal: bool,
    ) -> Tensor:
        parts = [part.contiguous() for part in (query_SD, key_SD, value_SD)]
        kept = kept_weights(starts, heads, dropout) if dropout else None
        given = len(starts) - 1, heads, query_SD.shape[1] // heads, causal, starts.data_ptr(), address(kept)
        ctx.layout = _Layout(*given, scale, 1 / (1 - dropout) if dropout < 1 else 0.0)
        ctx.alive = starts, kept  # the layout has their addresses
        ctx.save_for_backward(*parts)
        output_SD = torch.empty_like(parts[0])
        memory, library = _memory(ctx.layout, output_SD, 1)
        library.attend(ctypes.byref(ctx.layout), *map(address, (*parts, memory, output_SD)))
        return output_SD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_SD: Tensor) -> tuple[Tensor | None, ...]:
        parts = ctx.saved_tensors
        grads = grad_SD.new_zeros(3, *grad_SD.shape).unbind()
        memory, library = _memory(ctx.layout, grad_SD, 3)
        tensors = *parts, grad_SD.contiguous(), memory, *grads
        library.attend_back(ctypes.byref(ctx.layout), *map(address, tensors))
        return *grads, None, None, None, None, None


def attend(
    query_SD: Tensor,
    key_SD: Tensor,
    value_SD: Tensor,
    starts: Tensor,
    heads: int,
    scale: float,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """Compute attention within each text.

    Args:
        query_SD, key_SD, value_SD: Of all texts' tokens, text by text. The columns of a head are next to each other.
        starts: Index of each text's first token, and at the end S; int64.
        heads: N.
        scale: Factor of the products of queries and keys; positive.
        dropout: Rate of dropout on the weights.
        causal: Whether a token attends only to itself and to those before it.

    Returns:
        The outputs, shape (S, D). They have first derivatives only.
    """
    assert query_SD.dtype in BITS
    assert scale > 0
    assert starts.dtype == torch.int64
    found: Tensor = NativeAttention.apply(query_SD, key_SD, value_SD, starts, heads, scale, dropout, causal)
    return found


def kept_weights(starts: Tensor, heads: int, dropout: float) -> Tensor:
    """Draw the weights that dropout leaves, of each text and head L x L: 1 or 0.

    Args:
        starts, heads, dropout: As in ``attend``.
    """
    return torch.rand(heads * int((starts.diff() ** 2).sum())).ge_(dropout).to(torch.uint8)


def _memory(layout: _Layout, like: Tensor, matrices: int) -> tuple[Tensor, ctypes.CDLL]:
    """Return memory for a number of matrices of weights, and the library."""
    library = _library(like.dtype)
    return like.new_empty(library.attention_memory(ctypes.byref(layout), matrices)), library


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    library.attention_memory.argtypes, library.attention_memory.restype = [pointer, place], place
    library.attend.argtypes, library.attend_back.argtypes = [pointer] * 6, [pointer] * 9
    return library
