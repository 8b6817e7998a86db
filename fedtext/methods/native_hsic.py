"""Engine native: HSIC of a batch in C (methods/hsic.c).

Legend: C clients of a stack, B batch, F features.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedtext.models.functions import MappedFunction
from fedtext.runtime.compiled import compiled

SOURCE = Path(__file__).with_name("hsic.c")


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    real = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}[dtype]
    library.hsic.argtypes = [place, place, place, pointer, pointer, real, *[pointer] * 4]
    return library


class NativeHSIC(MappedFunction):
    """HSIC of one client's features, shape (B, F), or of those of a stack, (C, B, F); bandwidth 0: the median.

    Further outputs are the gradients, which the backward pass scales.
    """

    @staticmethod
    def forward(o_s: Tensor, o_p: Tensor, bandwidth: float) -> tuple[Tensor, ...]:
        o_s, o_p = o_s.contiguous(), o_p.contiguous()
        batch, width = o_s.shape[-2:]
        value, grads = o_s.new_empty(o_s.shape[:-2]), (torch.empty_like(o_s), torch.empty_like(o_p))
        memory = o_s.new_empty(batch * (5 * batch + 1))
        tensors = o_s, o_p, value, *grads
        steps = [tensor.numel() // max(1, value.numel()) * tensor.element_size() for tensor in tensors]
        for client in range(value.numel()):
            places = [tensor.data_ptr() + client * step for tensor, step in zip(tensors, steps, strict=True)]
            features, results = places[:2], places[2:]
            _library(o_s.dtype).hsic(batch, width, o_p.shape[-1], *features, bandwidth, memory.data_ptr(), *results)
        return value, *grads

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        grad_s, grad_p = ctx.saved_tensors
        upstream = upstream[..., None, None]
        return grad_s * upstream, grad_p * upstream, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, o_s: Tensor, o_p: Tensor, bandwidth: float) -> tuple[tuple[Tensor, ...], Any]:
        features = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip((o_s, o_p), in_dims, strict=False)
        ]
        return NativeHSIC.apply(*features, bandwidth), (0, 0, 0)
