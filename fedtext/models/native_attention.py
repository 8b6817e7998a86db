"""Engine native: attention within each text in C (models/attention.c).

Legend: B texts, S tokens of all texts, L of one text, N heads, A width of a head, D = N x A.
"""

import ctypes
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Attention:
    """softmax(scale Q K^T) V within each text, for each head.

    Args:
        starts: Index of each text's first token, and at the end S; int64.
        heads: N.
        scale: Factor of the products of queries and keys; positive.
        dropout: Rate of dropout on the weights.
        causal: Whether a token attends only to itself and to those before it.
        kept: The weights that dropout leaves, as ``kept_weights`` draws them; None: all.
    """

    starts: Tensor
    heads: int
    scale: float
    dropout: float
    causal: bool
    kept: Tensor | None

    @classmethod
    def drawn(cls, starts: Tensor, heads: int, scale: float, dropout: float, causal: bool) -> "Attention":
        """Draw the weights that dropout leaves.

        Args:
            starts, heads, scale, dropout, causal: As in the class.
        """
        kept = kept_weights(starts, heads, dropout) if dropout else None
        return cls(starts, heads, scale, dropout, causal, kept)

    def outputs(self, query_SD: Tensor, key_SD: Tensor, value_SD: Tensor) -> Tensor:
        """Compute attention.

        Args:
            query_SD, key_SD, value_SD: Of all tokens, contiguous.

        Returns:
            The outputs, shape (S, D).
        """
        output_SD, layout = torch.empty_like(query_SD), self._layout(query_SD.shape[1])
        memory, library = _memory(layout, output_SD, 1)
        library.attend(ctypes.byref(layout), *map(address, (query_SD, key_SD, value_SD, memory, output_SD)))
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
        layout = self._layout(grad_SD.shape[1])
        memory, library = _memory(layout, grad_SD, 3)
        tensors = query_SD, key_SD, value_SD, grad_SD, memory, query, key, value
        library.attend_back(ctypes.byref(layout), *map(address, tensors))
        return query, key, value

    def _layout(self, width: int) -> _Layout:
        given = len(self.starts) - 1, self.heads, width // self.heads, self.causal
        share = 1 / (1 - self.dropout) if self.dropout < 1 else 0.0
        return _Layout(*given, self.starts.data_ptr(), address(self.kept), self.scale, share)


class NativeAttention(Function):
    """``Attention`` with its gradients."""

    @staticmethod
    def forward(ctx: Any, query_SD: Tensor, key_SD: Tensor, value_SD: Tensor, attention: Attention) -> Tensor:
        parts = [part.contiguous() for part in (query_SD, key_SD, value_SD)]
        ctx.attention = attention
        ctx.save_for_backward(*parts)
        return attention.outputs(*parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_SD: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.attention.gradients(*ctx.saved_tensors, grad_SD.contiguous()), None


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
        starts, heads, scale, dropout, causal: As in ``Attention``.

    Returns:
        The outputs, shape (S, D). They have first derivatives only.
    """
    assert query_SD.dtype in BITS
    assert scale > 0
    assert starts.dtype == torch.int64
    attention = Attention.drawn(starts, heads, scale, dropout, causal)
    found: Tensor = NativeAttention.apply(query_SD, key_SD, value_SD, attention)
    return found


def kept_weights(starts: Tensor, heads: int, dropout: float) -> Tensor:
    """Draw the weights that dropout leaves, of each text and head L x L: 1 or 0.

    Args:
        starts, heads, dropout: As in ``attend``.
    """
    kept = torch.empty(heads * int((starts.diff() ** 2).sum()), dtype=torch.uint8)
    _library(torch.float32).draw_kept(len(kept), *choice(dropout), kept.data_ptr())
    return kept


def choice(dropout: float) -> tuple[int, int]:
    """Draw what dropout leaves: a key of 64 bits, and the least draw of 32 bits that is left (models/draws.h)."""
    return int(torch.randint(2**63 - 1, ())), min(round(dropout * 2**32), 2**32 - 1)


def _memory(layout: _Layout, like: Tensor, matrices: int) -> tuple[Tensor, ctypes.CDLL]:
    """Return memory for a number of matrices of weights, and the library."""
    library = _library(like.dtype)
    return like.new_empty(library.attention_memory(ctypes.byref(layout), matrices)), library


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    library.attention_memory.argtypes, library.attention_memory.restype = [pointer, place], place
    library.attend.argtypes, library.attend_back.argtypes = [pointer] * 6, [pointer] * 9
    library.draw_kept.argtypes = [place, ctypes.c_uint64, ctypes.c_uint32, pointer]
    return library
