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


def _adapted(
    rows: int, weight_OI: Tensor, factors: Factors, panels: Tensor | None = None, bias_O: Tensor | None = None
) -> tuple[Any, Tensor]:
    """Return an adapted layer for C, which has the addresses of these tensors, and memory for its products.

    Args:
        rows: S.
        weight_OI, bias_O, factors: Those of the layer.
        panels: Its transposed weight, packed; None: only gradients are computed.
    """
    (outputs, inputs), rank = weight_OI.shape, factors.a_RI.shape[0]
    tensors = panels, weight_OI, bias_O, factors.a_RI, factors.b_OR
    for tensor in tensors:
        assert tensor is None or (tensor.dtype == weight_OI.dtype and tensor.is_contiguous())
    made = _Adapted(rows, inputs, outputs, rank, factors.scale, *map(address, tensors))
    return ctypes.byref(made), weight_OI.new_empty(DEPTH * (max(inputs, outputs, rank) + WIDEST))


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
    packed = layer.packed()  # which nothing else may hold while C reads it
    made, memory = _adapted(rows, layer.weight, factors, packed.panels, layer.bias)
    tensors = inputs_SI, memory, between_SR, outputs_SO
    assert inputs_SI.dtype == memory.dtype
    assert inputs_SI.is_contiguous()
    library_of(inputs_SI.dtype).adapted_outputs(made, *map(address, tensors))
    return outputs_SO, between_SR


def gradients(
    grad_SO: Tensor,
    weight_OI: Tensor,
    factors: Factors | None,
    inputs_SI: Tensor | None,
    between_SR: Tensor | None,
    wanted: Sequence[bool],
    sums_SI: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute the gradients of a layer in C.

    Args:
        grad_SO: The gradients of its outputs; with an adapter contiguous.
        weight_OI: Its weight.
        factors: Those of its adapter, if it has one.
        inputs_SI: Its inputs; None if the gradient of A is not wanted.
        between_SR: As ``outputs`` returned it.
        wanted: Whether the gradients of the inputs, of A and of B are wanted.
        sums_SI: What the gradients of the inputs are added to, which changes; None: zeros.

    Returns:
        These gradients, None for those that are not wanted.
    """
    further, first, second = wanted
    rows, grad_inputs_SI = grad_SO.shape[0], None
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
    made, memory = _adapted(rows, weight_OI, factors)
    assert grad_SO.dtype == memory.dtype
    assert grad_SO.is_contiguous()
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
        factors = None
        if a_RI is not None and b_OR is not None:
            inputs_SI, a_RI, b_OR = inputs_SI.contiguous(), a_RI.contiguous(), b_OR.contiguous()
            factors = Factors(a_RI, b_OR, scale)
        outputs_SO, between_SR = outputs(layer, inputs_SI, factors)
        kept, ctx.scale = inputs_SI if ctx.needs_input_grad[1] else None, scale
        ctx.save_for_backward(kept, a_RI, b_OR, between_SR, layer.weight)
        return outputs_SO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_SO: Tensor) -> tuple[Tensor | None, ...]:
        inputs_SI, a_RI, b_OR, between_SR, weight_OI = ctx.saved_tensors
        factors = None
        if b_OR is not None:
            grad_SO, factors = grad_SO.contiguous(), Factors(a_RI, b_OR, ctx.scale)
        found = gradients(grad_SO, weight_OI, factors, inputs_SI, between_SR, ctx.needs_input_grad[:3])
        return *found, None, None
