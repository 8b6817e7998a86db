"""Engine native: the steps of models/steps.py in C (models/native.c), and the products around them.

Each row reads its projected input, and adds to that input's gradient, in the loop itself: no copies of all rows are
made before or after it. Products over all steps remain torch's. Legend as in models/steps.py.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedtext.models.functions import MappedFunction, merged
from fedtext.models.packing import Packing
from fedtext.models.steps import Steps
from fedtext.runtime.compiled import compiled

SOURCE = Path(__file__).with_name("native.c")
DEPTH, WIDEST = 256, 16  # of models/products.h: the rows of a product's panels, and at most the numbers in a vector


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    common: list[Any] = [place, place, pointer, place, place, *[pointer] * 3]
    library.forward.argtypes, library.backward.argtypes = common + [pointer] * 6, common + [pointer] * 8
    library.memory.argtypes, library.memory.restype = [place] * 3, place
    matrix: list[Any] = [pointer, place, place]
    library.product.argtypes = [place, place, place, *matrix, *matrix, pointer, pointer]
    return library


def _call(
    name: str, parts: int, packing: Packing, source_P: Tensor, weight_LGH: Tensor, *tensors: Tensor | None
) -> None:
    """Call a function of models/native.c. Its tensors are contiguous; the caller references them until it returns."""
    library, width = _library(weight_LGH.dtype), weight_LGH.shape[2]
    memory = weight_LGH.new_empty(library.memory(parts, width, packing.sizes_T[0]))
    addresses = [None if t is None else t.data_ptr() for t in (source_P, weight_LGH, memory, *tensors)]
    getattr(library, name)(parts, len(packing.sizes_T), packing.starts.data_ptr(), packing.lanes, width, *addresses)


def add_product(sums_MN: Tensor, left_MK: Tensor, right_KN: Tensor) -> None:
    """Add a product to a matrix.

    Args:
        sums_MN: The matrix, contiguous; changed in place.
        left_MK, right_KN: The factors, of any strides.
    """
    (rows, depth), columns = left_MK.shape, right_KN.shape[1]
    memory = sums_MN.new_empty(min(depth, DEPTH) * (columns + WIDEST))
    _library(sums_MN.dtype).product(
        rows,
        depth,
        columns,
        left_MK.data_ptr(),
        *left_MK.stride(),
        right_KN.data_ptr(),
        *right_KN.stride(),
        memory.data_ptr(),
        sums_MN.data_ptr(),
    )


class Linear(MappedFunction):
    """inputs_CNI times the transposed weights, plus biases: shape (C, N, G)."""

    @staticmethod
    def forward(inputs_CNI: Tensor, weight_CGI: Tensor, bias_CG: Tensor) -> Tensor:
        outputs_CNG = bias_CG[:, None].repeat(1, inputs_CNI.shape[1], 1)
        for output, inputs, weight in zip(outputs_CNG, inputs_CNI, weight_CGI, strict=True):
            add_product(output, inputs, weight.T)
        return outputs_CNG

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_CNG: Tensor) -> tuple[Tensor | None, ...]:
        inputs_CNI, weight_CGI = ctx.saved_tensors
        grad_inputs, grad_weight = torch.zeros_like(inputs_CNI), torch.zeros_like(weight_CGI)
        for client, grad in enumerate(grad_CNG):
            add_product(grad_weight[client], grad.T, inputs_CNI[client])
            if ctx.needs_input_grad[0]:
                add_product(grad_inputs[client], grad, weight_CGI[client])
        return grad_inputs if ctx.needs_input_grad[0] else None, grad_weight, grad_CNG.sum(1)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        together = [merged(info.batch_size, dim, tensor) for dim, tensor in zip(in_dims, tensors, strict=True)]
        return Linear.apply(*together).unflatten(0, (info.batch_size, -1)), 0


def _backward(ctx: Any, grad_PH: Tensor, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return grad_inputs_NG, grad_weight_LGH, and the gradients of the recurrent products, grad_LSG."""
    weight_LGH, source_P, hidden_PH, *states = ctx.saved_tensors
    packing: Packing = ctx.packing
    gates, cell, squashed = states if parts == 4 else (*states, None, None)
    width, lanes = weight_LGH.shape[2], packing.lanes
    weight_LGH, grad_PH = weight_LGH.contiguous(), grad_PH.contiguous()
    grad_inputs_NG = grad_PH.new_zeros(ctx.inputs, parts * width)
    grad_LSG = grad_PH.new_empty(lanes, len(grad_PH) // lanes, parts * width)
    before_LSH = grad_PH.new_empty(*grad_LSG.shape[:2], width)
    results = grad_inputs_NG, grad_LSG, before_LSH
    _call("backward", parts, packing, source_P, weight_LGH, grad_PH, gates, hidden_PH, cell, squashed, *results)
    grad_weight_LGH = torch.zeros_like(weight_LGH)
    for grad_weight, grad, before in zip(grad_weight_LGH, grad_LSG, before_LSH, strict=True):
        add_product(grad_weight, grad.T, before)
    return grad_inputs_NG, grad_weight_LGH, grad_LSG


class GRUSteps(Steps):
    """All steps of a GRU layer, as ``steps.GRUSteps``."""

    @staticmethod
    def forward(
        inputs_NG: Tensor, weight_LGH: Tensor, bias_LH: Tensor, source_P: Tensor, packing: Packing
    ) -> tuple[Tensor, ...]:
        hidden_PH = inputs_NG.new_empty(len(source_P), weight_LGH.shape[2])
        gates_P4H = hidden_PH.new_empty(len(source_P), 4, weight_LGH.shape[2])  # r, z, the recurrent part of n, and n
        inputs_NG, weight_LGH, bias_LH = inputs_NG.contiguous(), weight_LGH.contiguous(), bias_LH.contiguous()
        _call("forward", 3, packing, source_P, weight_LGH, inputs_NG, bias_LH, gates_P4H, hidden_PH, None, None)
        return hidden_PH, gates_P4H

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_PH: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        grad_inputs_NG, grad_weight_LGH, grad_LSG = _backward(ctx, grad_PH, 3)
        width = grad_weight_LGH.shape[2]
        return grad_inputs_NG, grad_weight_LGH, grad_LSG[..., 2 * width :].sum(1), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return GRUSteps.mapped(info, in_dims, *arguments)


class LSTMSteps(Steps):
    """All steps of an LSTM layer, as ``steps.LSTMSteps``."""

    @staticmethod
    def forward(inputs_NG: Tensor, weight_LGH: Tensor, source_P: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        hidden_PH = inputs_NG.new_empty(len(source_P), weight_LGH.shape[2])
        gates_P4H = hidden_PH.new_empty(len(source_P), 4, weight_LGH.shape[2])
        cell_PH, squashed_PH = torch.empty_like(hidden_PH), torch.empty_like(hidden_PH)  # c and tanh(c)
        inputs_NG, weight_LGH = inputs_NG.contiguous(), weight_LGH.contiguous()
        states = gates_P4H, hidden_PH, cell_PH, squashed_PH
        _call("forward", 4, packing, source_P, weight_LGH, inputs_NG, None, *states)
        return hidden_PH, gates_P4H, cell_PH, squashed_PH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_PH: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        return *_backward(ctx, grad_PH, 4)[:2], None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return LSTMSteps.mapped(info, in_dims, *arguments)
