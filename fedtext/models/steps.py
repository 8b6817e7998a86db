"""The loops over time: all steps of a GRU or LSTM layer, with a backward pass of our own.

What does not depend on the step before is computed for all steps at once: gates' inputs before the loop, weight
gradients after it. Every step is one batched product over all lanes and works on one contiguous block of memory. Under
``torch.vmap`` the clients' mapped parameters become more lanes of the same loop.

Rows are in the packing's own order (models/packing.py), which only models/cells.py understands besides.

Legend: P packed rows, L lanes, H hidden, G gates (3H of a GRU, 4H of an LSTM), N projected inputs, S token places.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fedtext.models.packing import Packing


class Steps(Function):
    """What the two kinds of layer have in common. ``apply`` takes the projected inputs, the recurrent weights (and what
    else is drawn from the parameters), then the input each row takes and the packing; the first output is hidden_PH.
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
        """All clients in one call: the rule for ``torch.vmap``."""
        *tensors, source_P, packing = arguments
        together = [merged(info.batch_size, dim, tensor) for dim, tensor in zip(in_dims, tensors, strict=False)]
        outputs = cls.apply(*together, source_P, packing)
        return tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs), (0,) * len(outputs)


def merged(clients: int, dim: int | None, tensor: Tensor) -> Tensor:
    """A mapped tensor with its client axis folded into the first: C x N x ... as CN x ..."""
    stacked = tensor.expand(clients, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return stacked.flatten(0, 1)


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
        weight_LHG = weight_LGH.transpose(1, 2).contiguous()
        before = hidden_PH.new_zeros(packing.lanes, packing.sizes_T[0], width)
        last = packing.sizes_T[0]
        for size, gates, rz, r, z, recurrent, new, hidden in zip(
            packing.sizes_T,
            packing.steps(gates_PG),
            packing.steps(gates_PG[:, : 2 * width]),
            packing.steps(gates_PG[:, :width]),
            packing.steps(gates_PG[:, width : 2 * width]),
            packing.steps(gates_PG[:, 2 * width :]),
            packing.steps(new_PH),
            packing.steps(hidden_PH),
            strict=True,
        ):
            if size != last:
                before, last = before[:, :size], size
            gates.baddbmm_(before, weight_LHG)
            rz.sigmoid_()
            new.addcmul_(r, recurrent).tanh_()
            before = torch.lerp(new, before, z, out=hidden)
        return hidden_PH, gates_PG, new_PH

    @staticmethod
    @once_differentiable  # the reference engine is there for second derivatives
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
        grad_PH = grad_PH.clone()
        grad_P3H = torch.empty_like(factor_P3H)
        flat = packing.steps(grad_P3H.flatten(1))
        later: tuple[Tensor, Tensor, Tensor] | None = None
        last = packing.sizes_T[-1]
        for size, dh, dh_1, factor, dg, dg_flat, kept in zip(
            reversed(packing.sizes_T),
            reversed(packing.steps(grad_PH)),
            reversed(packing.steps(grad_PH[:, None])),
            reversed(packing.steps(factor_P3H)),
            reversed(packing.steps(grad_P3H)),
            reversed(flat),
            reversed(packing.steps(z)),
            strict=True,
        ):
            if later is not None:
                carried = dh if size == last else dh[:, :last]
                carried.addcmul_(later[0], later[1]).baddbmm_(later[2], weight_LGH)
            torch.mul(dh_1, factor, out=dg)
            later, last = (dh, kept, dg_flat), size
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
        width = weight_LGH.shape[2]
        gates_PG = inputs_NG.index_select(0, source_P)  # computed in place
        hidden_PH = gates_PG.new_empty(len(gates_PG), width)
        cell_PH, squashed_PH = torch.empty_like(hidden_PH), torch.empty_like(hidden_PH)  # c and tanh(c)
        weight_LHG = weight_LGH.transpose(1, 2).contiguous()
        before = cell = hidden_PH.new_zeros(packing.lanes, packing.sizes_T[0], width)
        last = packing.sizes_T[0]
        for size, gates, ifo, i, f, o, g, c, squashed, hidden in zip(
            packing.sizes_T,
            packing.steps(gates_PG),
            packing.steps(gates_PG[:, : 3 * width]),
            *[packing.steps(gate) for gate in gates_PG.split(width, 1)],
            packing.steps(cell_PH),
            packing.steps(squashed_PH),
            packing.steps(hidden_PH),
            strict=True,
        ):
            if size != last:
                before, cell, last = before[:, :size], cell[:, :size], size
            gates.baddbmm_(before, weight_LHG)
            ifo.sigmoid_()
            g.tanh_()
            cell = torch.mul(f, cell, out=c).addcmul_(i, g)
            before = torch.mul(o, torch.tanh(cell, out=squashed), out=hidden)
        return hidden_PH, gates_PG, cell_PH, squashed_PH

    @staticmethod
    @once_differentiable
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
        grad_PH, grad_cell_PH = grad_PH.clone(), torch.zeros_like(hidden_PH)
        grad_P4H = torch.empty_like(factor_P4H)
        later: tuple[Tensor, Tensor, Tensor] | None = None
        last = packing.sizes_T[-1]
        for size, dh, dc, dc_1, dslope, factor, factor_o, dg, dg_o, dg_flat, kept in zip(
            reversed(packing.sizes_T),
            reversed(packing.steps(grad_PH)),
            reversed(packing.steps(grad_cell_PH)),
            reversed(packing.steps(grad_cell_PH[:, None])),
            reversed(packing.steps(slope)),
            reversed(packing.steps(factor_P4H)),
            reversed(packing.steps(factor_P4H[:, 2])),
            reversed(packing.steps(grad_P4H)),
            reversed(packing.steps(grad_P4H[:, 2])),
            reversed(packing.steps(grad_P4H.flatten(1))),
            reversed(packing.steps(f)),
            strict=True,
        ):
            if later is not None:
                whole = size == last
                (dh if whole else dh[:, :last]).baddbmm_(later[2], weight_LGH)
                torch.mul(later[0], later[1], out=dc if whole else dc[:, :last])
            dc.addcmul_(dh, dslope)
            torch.mul(dc_1, factor, out=dg)
            torch.mul(dh, factor_o, out=dg_o)
            later, last = (dc, kept, dg_flat), size
        grad_PG = grad_P4H.flatten(1)
        grad_weight_LGH, _ = _weight_gradient(grad_PG, _before(hidden_PH, packing), packing)
        grad_inputs_NG = grad_PG.new_zeros(ctx.inputs, 4 * width).index_add_(0, source_P, grad_PG)
        return grad_inputs_NG, grad_weight_LGH, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return LSTMSteps.mapped(info, in_dims, *arguments)


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
