"""All steps of a GRU or LSTM layer, with their own backward pass.

Operations that do not depend on the previous step are done for all steps at once: the inputs of gates before the loop
over time, weight gradients after it. The loops are in models/loops.py, and for GPUs in models/kernels.py, with another
order of sums. Under ``torch.vmap`` the clients' mapped parameters become more lanes of the same loop.

Rows are in the order of the packing (models/packing.py), which is used only here and in models/cells.py.

Legend: P packed rows, L lanes, H hidden, G gates (3H of a GRU, 4H of an LSTM), N projected inputs, S token places.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fedtext.models import loops
from fedtext.models.functions import MappedFunction, first_order, merged
from fedtext.models.packing import Packing


class Steps(MappedFunction):
    """Base of both kinds of layer.

    The arguments of ``apply`` are the projected inputs, the recurrent weights (for a GRU also a bias), the input of
    each row, and the packing. Its first output is hidden_PH.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, source_P, packing = inputs
        ctx.packing, ctx.inputs = packing, len(tensors[0])
        ctx.save_for_backward(tensors[1], source_P, *output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @classmethod
    def mapped(cls, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, ...]:
        """Process all clients in one call: the rule for ``torch.vmap``.

        Args:
            info: The number of clients (``batch_size``).
            in_dims: The axis of clients in each tensor; None: the same tensor for all.
            arguments: Those of ``apply``.
        """
        *tensors, source_P, packing = arguments
        together = [merged(info.batch_size, dim, tensor) for dim, tensor in zip(in_dims, tensors, strict=False)]
        outputs = cls.apply(*together, source_P, packing)
        return tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs), (0,) * len(outputs)


class GRUSteps(Steps):
    """All steps of a GRU layer, with gates in nn.GRU's order r, z, n. ``bias_LH`` is the recurrent bias of n, which the
    reset gate scales; the other recurrent biases have been added to the projections."""

    @staticmethod
    def forward(
        inputs_NG: Tensor, weight_LGH: Tensor, bias_LH: Tensor, source_P: Tensor, packing: Packing
    ) -> tuple[Tensor, ...]:
        width = weight_LGH.shape[2]
        gates_PG = inputs_NG.index_select(0, source_P)  # r, z and the recurrent part of n, computed in place
        new_PH = gates_PG[:, 2 * width :].clone(memory_format=torch.contiguous_format)  # n
        for block in packing.blocks(gates_PG[:, 2 * width :]):
            block.copy_(bias_LH[:, None])
        hidden_PH = torch.empty_like(new_PH)
        _loops(packing).gru_forward(gates_PG, new_PH, hidden_PH, weight_LGH, packing)
        return hidden_PH, gates_PG, new_PH

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_PH: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        weight_LGH, source_P, hidden_PH, gates_PG, n = ctx.saved_tensors
        packing: Packing = ctx.packing
        width = hidden_PH.shape[1]
        r, z, recurrent = gates_PG.split(width, 1)
        before_PH = _before(hidden_PH, packing)
        # d(gate input) = d(hidden) * a factor known beforehand, gate by gate; for n by way of r, which is how the
        # recurrent product reaches it
        slope_n = _one_minus_square(n)
        slope_n.addcmul_(slope_n, z, value=-1)
        rz = gates_PG[:, : 2 * width]
        factor_P3H = torch.empty_like(gates_PG).unflatten(1, (3, width))
        torch.addcmul(rz, rz, rz, value=-1, out=factor_P3H[:, :2].flatten(1))
        factor_P3H[:, 0].mul_(recurrent).mul_(slope_n)
        factor_P3H[:, 1].mul_(before_PH - n)
        torch.mul(slope_n, r, out=factor_P3H[:, 2])
        grad_PH = grad_PH.clone(memory_format=torch.contiguous_format)
        grad_P3H = _loops(packing).gru_backward(grad_PH, factor_P3H, z, weight_LGH, packing)
        grad_PG = grad_P3H.flatten(1)
        grad_weight_LGH, grad_LSG = _weight_gradient(grad_PG, before_PH, packing)
        grad_bias_LH = grad_LSG[..., 2 * width :].sum(1)
        torch.mul(grad_PH, slope_n, out=grad_P3H[:, 2])  # towards the input n is reached directly, not by way of r
        grad_inputs_NG = grad_PG.new_zeros(ctx.inputs, 3 * width).index_add_(0, source_P, grad_PG)
        return grad_inputs_NG, grad_weight_LGH, grad_bias_LH, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return GRUSteps.mapped(info, in_dims, *arguments)


class LSTMSteps(Steps):
    """All steps of an LSTM layer, with gates in the order i, f, o, g: the three sigmoids side by side. All biases have
    been added to the projections."""

    @staticmethod
    def forward(inputs_NG: Tensor, weight_LGH: Tensor, source_P: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        gates_PG = inputs_NG.index_select(0, source_P)  # computed in place
        hidden_PH = gates_PG.new_empty(len(gates_PG), weight_LGH.shape[2])
        cell_PH, squashed_PH = torch.empty_like(hidden_PH), torch.empty_like(hidden_PH)  # c and tanh(c)
        _loops(packing).lstm_forward(gates_PG, cell_PH, squashed_PH, hidden_PH, weight_LGH, packing)
        return hidden_PH, gates_PG, cell_PH, squashed_PH

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_PH: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        weight_LGH, source_P, hidden_PH, gates_PG, cell_PH, squashed = ctx.saved_tensors
        packing: Packing = ctx.packing
        width = hidden_PH.shape[1]
        i, f, o, g = gates_PG.split(width, 1)
        # d(gate input) = d(cell) * a factor known beforehand for i, f and g, and d(hidden) * one for o
        factor_P4H = torch.empty_like(gates_PG).unflatten(1, (4, width))
        ifo = gates_PG[:, : 3 * width]
        torch.addcmul(ifo, ifo, ifo, value=-1, out=factor_P4H[:, :3].flatten(1))
        factor_P4H[:, 0].mul_(g)
        factor_P4H[:, 1].mul_(_before(cell_PH, packing))
        factor_P4H[:, 2].mul_(squashed)
        torch.addcmul(i, i * g, g, value=-1, out=factor_P4H[:, 3])
        slope = _one_minus_square(squashed).mul_(o)
        grad_PH = grad_PH.clone(memory_format=torch.contiguous_format)
        grad_P4H = _loops(packing).lstm_backward(grad_PH, factor_P4H, slope, f, weight_LGH, packing)
        grad_PG = grad_P4H.flatten(1)
        grad_weight_LGH, _ = _weight_gradient(grad_PG, _before(hidden_PH, packing), packing)
        grad_inputs_NG = grad_PG.new_zeros(ctx.inputs, 4 * width).index_add_(0, source_P, grad_PG)
        return grad_inputs_NG, grad_weight_LGH, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return LSTMSteps.mapped(info, in_dims, *arguments)


def _loops(packing: Packing) -> ModuleType:
    """The module that has this packing's loops over time."""
    if packing.engine != "triton":
        return loops
    from fedtext.models import kernels  # here, since Triton is not everywhere

    return kernels


def _one_minus_square(value: Tensor) -> Tensor:
    """The slope of tanh where it has this value."""
    return torch.addcmul(value.new_ones(()), value, value, value=-1)


def _before(state_PH: Tensor, packing: Packing) -> Tensor:
    """The state one step earlier, row by row; zero before the first step."""
    first = packing.lanes * packing.sizes_T[0]
    before_PH = torch.empty_like(state_PH)
    before_PH[:first].zero_()
    torch.index_select(state_PH, 0, packing.before, out=before_PH[first:])
    return before_PH


def _weight_gradient(grad_PG: Tensor, before_PH: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """The recurrent weights' gradient, in one product over all steps of each lane, and grad_PG in lane order."""
    rows, lanes = packing.by_lane, (packing.lanes, -1)
    grad_LSG = grad_PG.index_select(0, rows).unflatten(0, lanes)
    before_LSH = before_PH.index_select(0, rows).unflatten(0, lanes)
    return torch.bmm(grad_LSG.transpose(1, 2), before_LSH), grad_LSG
