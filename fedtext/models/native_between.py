"""Engine native: what a block of a transformer computes between its products, in C (models/between.c).

Legend: S tokens of all texts, D width of the block, F of its feed-forward part.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from fedtext.runtime.compiled import address, compiled

SOURCE = Path(__file__).with_name("between.c")
KINDS = {"gelu": 0, "gelu_new": 1, "gelu_pytorch_tanh": 1}  # of GELU, by their names in the package transformers


def gelu(kind: int, inputs_SF: Tensor) -> Tensor:
    """Return GELU of contiguous inputs."""
    outputs_SF = torch.empty_like(inputs_SF)
    _library(inputs_SF.dtype).gelu(kind, inputs_SF.numel(), *map(address, (inputs_SF, outputs_SF)))
    return outputs_SF


def gelu_back(kind: int, inputs_SF: Tensor, grad_SF: Tensor) -> Tensor:
    """Replace the gradients of the outputs by those of the inputs, and return these.

    Args:
        kind: The kind of GELU.
        inputs_SF: The inputs, contiguous.
        grad_SF: The gradients, contiguous.
    """
    _library(grad_SF.dtype).gelu_back(kind, grad_SF.numel(), *map(address, (inputs_SF, grad_SF)))
    return grad_SF


@dataclass(frozen=True)
class Norm:
    """The weight of LayerNorm, the normalized numbers, and the factor of each row, from which its gradient follows."""

    weight: Tensor
    normal_SD: Tensor
    factor_S: Tensor

    @classmethod
    def of(cls, module: nn.LayerNorm, inputs_SD: Tensor) -> tuple[Tensor, "Norm"]:
        """Compute the outputs; they are not kept, since as those of a part they would refer to themselves."""
        assert inputs_SD.dtype == module.weight.dtype
        normal_SD, outputs_SD = torch.empty_like(inputs_SD), torch.empty_like(inputs_SD)
        factor_S = inputs_SD.new_empty(inputs_SD.shape[0])
        given = address(inputs_SD), address(module.weight), address(module.bias), module.eps
        tensors = normal_SD, factor_S, outputs_SD
        _library(inputs_SD.dtype).normalize(*inputs_SD.shape, *given, *map(address, tensors))
        return outputs_SD, cls(module.weight, normal_SD, factor_S)

    def back(self, grad_SD: Tensor) -> Tensor:
        """Replace the gradients of the outputs by those of the inputs, and return these."""
        tensors = self.normal_SD, self.factor_S, self.weight, grad_SD
        _library(grad_SD.dtype).normalize_back(*grad_SD.shape, *map(address, tensors))
        return grad_SD


def add_dropped(values: Tensor, dropout: float, drawn: tuple[int, int], start: Tensor | None = None) -> Tensor:
    """Return a matrix plus values after dropout.

    Args:
        values: The values, contiguous.
        dropout: Its rate.
        drawn: What is left, by ``native_attention.choice``.
        start: The matrix; None: zeros.
    """
    if not dropout:
        return values if start is None else start + values
    sums, tensors = torch.empty_like(values), (values, start)
    given = values.numel(), *drawn, 1 / (1 - dropout)
    _library(values.dtype).add_dropped(*given, *map(address, (*tensors, sums)))
    return sums


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer, number = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
    library.gelu.argtypes = library.gelu_back.argtypes = [place, place, pointer, pointer]
    library.normalize.argtypes = [place, place, pointer, pointer, pointer, number, pointer, pointer, pointer]
    library.normalize_back.argtypes = [place, place, pointer, pointer, pointer, pointer]
    library.add_dropped.argtypes = [place, ctypes.c_uint64, ctypes.c_uint32, number, pointer, pointer, pointer]
    return library
