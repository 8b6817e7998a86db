"""Engine native: linear layers whose weights do not change, alone or with an adapter, in C.

Legend: S rows, I inputs and O outputs of a layer, R rank of an adapter.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fedtext.models.native_products import DEPTH, WIDEST, Packed, library_of, product, write_product
from fedtext.runtime.compiled import address


class Layer(Protocol):
    """A linear layer whose weight does not change."""

    weight: Tensor
    bias: Tensor | None

    def packed(self) -> Packed:
        """Return the transposed weight, packed."""
        ...


@dataclass(frozen=True)
class Factors:
    """The factors of an adapter, whose product times the scale is beside a weight."""

    a_RI: Tensor
    b_OR: Tensor
    scale: float


class _Adapted(ctypes.Structure):
    """``adapted`` of models/products.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "inputs", "outputs", "rank")),
        ("scale", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("panels", "weight_OI", "bias_O", "a_RI", "b_OR")),
    ]


def _adapted(rows: int, layer: Layer, factors: Factors) -> tuple[Any, Tensor]:
    """Return the address of an adapted layer for C, and memory for its products."""
    (outputs, inputs), rank = layer.weight.shape, factors.a_RI.shape[0]
    tensors = layer.packed().panels, layer.weight, layer.bias, factors.a_RI, factors.b_OR
    made = _Adapted(rows, inputs, outputs, rank, factors.scale, *map(address, tensors))
    return ctypes.byref(made), layer.weight.new_empty(DEPTH * (max(inputs, outputs, rank) + WIDEST))


def outputs(layer: Layer, inputs_SI: Tensor, factors: Factors | None) -> tuple[Tensor, Tensor | None]:
    """Compute the outputs of a layer in C. All products are added up in one matrix.

    Args:
        layer: The layer.
        inputs_SI: Its inputs; with an adapter contiguous.
        factors: Those of its adapter, if it has one.

    Returns:
        The outputs, shape (S, O), and with an adapter s A x, shape (S, R), for the gradients.
    """
    if factors is None:
        return product(inputs_SI, layer.packed(), layer.bias), None
    rows = inputs_SI.shape[0]
    outputs_SO, between_SR = (inputs_SI.new_empty(rows, size) for size in factors.b_OR.shape)
    made, memory = _adapted(rows, layer, factors)
    tensors = inputs_SI, memory, between_SR, outputs_SO
    library_of(inputs_SI.dtype).adapted_outputs(made, *map(address, tensors))
    return outputs_SO, between_SR


def gradients(
    grad_SO: Tensor,
    layer: Layer,
    factors: Factors | None,
    inputs_SI: Tensor | None,
    between_SR: Tensor | None,
    wanted: Sequence[bool],
    sums_SI: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute the gradients of a layer in C.

    Args:
        grad_SO: The gradients of its outputs; with an adapter contiguous.
        layer: The layer.
        factors: Those of its adapter, if it has one.
        inputs_SI: Its inputs; None if the gradient of A is not wanted.
        between_SR: As ``outputs`` returned it.
        wanted: Whether the gradients of the inputs, of A and of B are wanted.
        sums_SI: What the gradients of the inputs are added to, which changes; None: zeros.

    Returns:
        These gradients, None for those that are not wanted.
    """
    further, first, second = wanted
    rows, weight_OI = grad_SO.shape[0], layer.weight
    grad_inputs_SI = None
    if further:
        grad_inputs_SI = grad_SO.new_empty(rows, weight_OI.shape[1]) if sums_SI is None else sums_SI
    if factors is None:
        if grad_inputs_SI is not None:
            write_product(grad_inputs_SI, sums_SI, grad_SO, weight_OI)
        return grad_inputs_SI, None, None
    assert between_SR is not None
    empty = torch.empty_like if rows else torch.zeros_like  # a product of no rows is not written
    grad_a_RI = empty(factors.a_RI) if first else None
    grad_b_OR = empty(factors.b_OR) if second else None
    made, memory = _adapted(rows, layer, factors)
    tensors = inputs_SI, between_SR, grad_SO, sums_SI, memory, torch.empty_like(between_SR)
    given = *tensors, grad_inputs_SI, grad_a_RI, grad_b_OR
    library_of(grad_SO.dtype).adapted_gradients(made, *map(address, given))
    return grad_inputs_SI, grad_a_RI, grad_b_OR


class LinearInC(Function):
    """``outputs`` with its gradients."""

    @staticmethod
    def forward(
        ctx: Any, inputs_SI: Tensor, a_RI: Tensor | None, b_OR: Tensor | None, scale: float, layer: Layer
    ) -> Tensor:
        factors = None if a_RI is None or b_OR is None else Factors(a_RI, b_OR, scale)
        if factors:
            inputs_SI = inputs_SI.contiguous()
        outputs_SO, between_SR = outputs(layer, inputs_SI, factors)
        ctx.layer, ctx.scale = layer, scale
        kept = inputs_SI if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(kept, a_RI, b_OR, between_SR, layer.weight)
        return outputs_SO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_SO: Tensor) -> tuple[Tensor | None, ...]:
        inputs_SI, a_RI, b_OR, between_SR, _ = ctx.saved_tensors  # which raises an error if one of them has changed
        factors = None if b_OR is None else Factors(a_RI, b_OR, ctx.scale)
        if factors:
            grad_SO = grad_SO.contiguous()
        found = gradients(grad_SO, ctx.layer, factors, inputs_SI, between_SR, ctx.needs_input_grad[:3])
        return *found, None, None
