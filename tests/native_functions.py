"""Functions in C of transformers that Python calls in tests alone."""

import ctypes

import torch
from torch import Tensor

from fedtext.models.native_attention import Dropout
from fedtext.models.native_transformer import library
from fedtext.runtime.compiled import address


def pointers(*tensors: Tensor | None) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(address(tensor)) for tensor in tensors]


def gelu(kind: int, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """GELU and its derivative."""
    slopes, outputs = inputs.clone(), torch.empty_like(inputs)
    size = ctypes.c_int64(inputs.numel())
    library(inputs.dtype).gelu(ctypes.c_int64(kind), size, *pointers(slopes, outputs))
    return outputs, slopes


def add_dropped(values: Tensor, dropout: Dropout, start: Tensor | None = None) -> Tensor:
    """``start``, or zeros, plus what dropout leaves of the values."""
    outputs, size = torch.empty_like(values), ctypes.c_int64(values.numel())
    drawn = ctypes.c_uint64(dropout.key), ctypes.c_uint64(dropout.limit), ctypes.c_double(dropout.share)
    library(values.dtype).add_dropped(size, *drawn, *pointers(values, start, outputs))
    return outputs
