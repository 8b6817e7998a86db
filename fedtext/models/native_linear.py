"""Engine native: linear layers whose weights do not change, alone or with an adapter, in C.

Legend: S rows, I inputs and O outputs of a layer, R rank of an adapter.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from fedtext.models.functions import first_order
from fedtext.models.native_products import library_of
from fedtext.models.native_transformer import Adapted, library
from fedtext.runtime.compiled import address


class Layer(Protocol):
    """A linear layer whose weight does not change."""

    weight: Tensor
    bias: Tensor | None

    def panels(self, halves: bool) -> "Panels":
        """Return the weight for products in C, of factors that are rounded to bfloat16 or not."""
        ...


@dataclass(frozen=True)
class Factors:
    """The factors of an adapter, whose product times the scale is beside a weight."""

    a_RI: Tensor
    b_OR: Tensor
    scale: float


class Panels(NamedTuple):
    """A layer's weight in the order in which products read it.

    Attributes:
        forward: Transposed; None: only gradients are computed.
        back: For the gradients; None: they read the weight where it is, and nothing is rounded to bfloat16.
    """

    forward: Tensor | None = None
    back: Tensor | None = None

    @classmethod
    def halves(cls, weight_OI: Tensor) -> "Panels":
        """Pack a weight in bfloat16."""
        return cls(_halves(weight_OI.t()), _halves(weight_OI))


def _halves(right_KN: Tensor) -> Tensor:
    """Pack the right factor of a product in bfloat16."""
    (depth, columns), functions = right_KN.shape, library(right_KN.dtype)
    elements = functions.halves_of(depth)
    panels = right_KN.new_empty(library_of(right_KN.dtype).packed_size(elements, columns))
    memory = right_KN.new_empty(columns, elements)
    functions.pack_halves(depth, columns, right_KN.data_ptr(), *right_KN.stride(), address(memory), address(panels))
    return panels


def layer_in_c(rows: int, weight_OI: Tensor, bias_O: Tensor | None, factors: Factors | None, panels: Panels) -> Adapted:
    """Return a layer for C, which has the addresses of these tensors.

    Args:
        rows: S.
        weight_OI, bias_O: Those of the layer, contiguous.
        factors: Those of its adapter, contiguous, if it has one.
        panels: Its weight, packed.
    """
    a_RI, b_OR, rank, scale = None, None, 0, 0.0
    if factors is not None:
        a_RI, b_OR, rank, scale = factors.a_RI, factors.b_OR, factors.a_RI.shape[0], factors.scale
    tensors = panels.forward, weight_OI, bias_O, a_RI, b_OR, panels.back
    for tensor in tensors:
        assert tensor is None or (tensor.dtype == weight_OI.dtype and tensor.is_contiguous())
    outputs, inputs = weight_OI.shape
    return Adapted(rows, inputs, outputs, rank, scale, *map(address, tensors))


def grad_of(factor: Tensor, rows: int, wanted: bool) -> Tensor | None:
    """Return a tensor for the gradient of a factor; of no rows zeros, since such a product is not written.

    Args:
        factor: The factor.
        rows: S.
        wanted: Whether the gradient is wanted; otherwise there is no tensor.
    """
    if not wanted:
        return None
    return torch.empty_like(factor) if rows else torch.zeros_like(factor)


def _memory(layer: Adapted, like: Tensor) -> Tensor:
    return like.new_empty(library(like.dtype).adapted_memory(ctypes.byref(layer)))


class LinearInC(Function):
    """A layer with its gradients. All products are added up in one matrix."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_SI: Tensor,
        a_RI: Tensor | None,
        b_OR: Tensor | None,
        scale: float,
        layer: Layer,
        halves: bool,
    ) -> Tensor:
        """Compute the outputs.

        Args:
            inputs_SI: The inputs.
            a_RI, b_OR, scale: The factors of an adapter, and its scale; None: it has none.
            layer: The layer.
            halves: Whether factors of products with the weight are rounded to bfloat16.
        """
        inputs_SI, factors = inputs_SI.contiguous(), None
        if a_RI is not None and b_OR is not None:
            a_RI, b_OR = a_RI.contiguous(), b_OR.contiguous()
            factors = Factors(a_RI, b_OR, scale)
        panels = layer.panels(halves)  # which nothing else may hold while C reads it
        made = layer_in_c(len(inputs_SI), layer.weight, layer.bias, factors, panels)
        assert inputs_SI.dtype == layer.weight.dtype
        outputs_SO, between_SR = (inputs_SI.new_empty(made.rows, size) for size in (made.outputs, made.rank))
        tensors = inputs_SI, _memory(made, inputs_SI), between_SR, outputs_SO
        library(inputs_SI.dtype).adapted_outputs(ctypes.byref(made), *map(address, tensors))
        kept, ctx.scale = inputs_SI if ctx.needs_input_grad[1] else None, scale
        ctx.save_for_backward(kept, a_RI, b_OR, between_SR, layer.weight)
        ctx.back = panels.back  # which may have been made in inference mode
        return outputs_SO

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_SO: Tensor) -> tuple[Tensor | None, ...]:
        inputs_SI, a_RI, b_OR, between_SR, weight_OI = ctx.saved_tensors
        grad_SO, rows = grad_SO.contiguous(), len(grad_SO)
        assert grad_SO.dtype == weight_OI.dtype
        factors = None if b_OR is None else Factors(a_RI, b_OR, ctx.scale)
        made = layer_in_c(rows, weight_OI, None, factors, Panels(back=ctx.back))
        further, *wanted = ctx.needs_input_grad[:3]
        grads = [grad_of(*each) for each in zip((a_RI, b_OR), (rows, rows), wanted, strict=True)]
        made.grad_a, made.grad_b = map(address, grads)
        grad_inputs_SI = grad_SO.new_empty(rows, made.inputs) if further else None
        tensors = inputs_SI, between_SR, grad_SO, None, _memory(made, grad_SO), torch.empty_like(between_SR)
        given = *map(address, tensors), address(grad_inputs_SI)
        library(grad_SO.dtype).adapted_gradients(ctypes.byref(made), *given)
        return grad_inputs_SI, *grads, None, None, None
