"""Engine native: linear layers whose weights do not change, alone or with an adapter, in C.

Legend: S rows, I inputs and O outputs of a layer, R rank of an adapter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fedtext.models.native_products import Packed, product, write_product


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


def outputs(layer: Layer, inputs_SI: Tensor, factors: Factors | None) -> tuple[Tensor, Tensor | None]:
    """Compute the outputs of a layer in C. All products are added up in one matrix.

    Args:
        layer: The layer.
        inputs_SI: Its inputs.
        factors: Those of its adapter, if it has one.

    Returns:
        The outputs, shape (S, O), and with an adapter s A x, shape (S, R), for the gradients.
    """
    outputs_SO = product(inputs_SI, layer.packed(), layer.bias)
    if factors is None:
        return outputs_SO, None
    between_SR = product(inputs_SI, factors.a_RI.t()).mul_(factors.scale)
    write_product(outputs_SO, outputs_SO, between_SR, factors.b_OR.t())
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
        grad_SO: The gradients of its outputs.
        weight_OI: Its weight.
        factors: Those of its adapter, if it has one.
        inputs_SI: Its inputs, which are needed for the gradient of A alone.
        between_SR: As ``outputs`` returned it.
        wanted: Whether the gradients of the inputs, of A and of B are wanted.
        sums_SI: What the gradients of the inputs are added to, which changes; None: zeros.

    Returns:
        These gradients, None for those that are not wanted.
    """
    grad_inputs_SI = grad_a_RI = grad_b_OR = None
    if wanted[0]:
        grad_inputs_SI = grad_SO.new_empty(grad_SO.shape[0], weight_OI.shape[1]) if sums_SI is None else sums_SI
        write_product(grad_inputs_SI, sums_SI, grad_SO, weight_OI)
    if factors is not None:
        grad_between_SR = product(grad_SO, factors.b_OR).mul_(factors.scale)
        if grad_inputs_SI is not None:
            write_product(grad_inputs_SI, grad_inputs_SI, grad_between_SR, factors.a_RI)
        if wanted[1] and inputs_SI is not None:
            grad_a_RI = product(grad_between_SR.t(), inputs_SI)
        if wanted[2] and between_SR is not None:
            grad_b_OR = product(grad_SO.t(), between_SR)
    return grad_inputs_SI, grad_a_RI, grad_b_OR


class LinearInC(Function):
    """``outputs`` with its gradients."""

    @staticmethod
    def forward(
        ctx: Any, inputs_SI: Tensor, a_RI: Tensor | None, b_OR: Tensor | None, scale: float, layer: Layer
    ) -> Tensor:
        factors = None if a_RI is None or b_OR is None else Factors(a_RI, b_OR, scale)
        outputs_SO, between_SR = outputs(layer, inputs_SI, factors)
        ctx.scale, inputs = scale, inputs_SI if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(inputs, a_RI, b_OR, between_SR, layer.weight)
        return outputs_SO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_SO: Tensor) -> tuple[Tensor | None, ...]:
        inputs_SI, a_RI, b_OR, between_SR, weight_OI = ctx.saved_tensors
        factors = None if b_OR is None else Factors(a_RI, b_OR, ctx.scale)
        found = gradients(grad_SO, weight_OI, factors, inputs_SI, between_SR, ctx.needs_input_grad[:3])
        return *found, None, None
