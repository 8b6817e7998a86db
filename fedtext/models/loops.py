"""The loops over time in torch: every step is one batched product over all lanes, on one contiguous block of memory.

models/kernels.py has the same functions for GPUs. Legend as in models/steps.py.
"""

import torch
from torch import Tensor

from fedtext.models.packing import Packing


def gru_forward(gates_PG: Tensor, new_PH: Tensor, hidden_PH: Tensor, weight_LGH: Tensor, packing: Packing) -> None:
    """Compute the states of a GRU layer.

    Args:
        gates_PG: Inputs of r and z, and the recurrent bias of n. Overwritten by r, z and the recurrent part of n.
        new_PH: Input of n. Overwritten by n.
        hidden_PH: Output, the states.
        weight_LGH: Recurrent weights.
        packing: The packing.
    """
    width = hidden_PH.shape[1]
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


def gru_backward(grad_PH: Tensor, factor_P3H: Tensor, z_PH: Tensor, weight_LGH: Tensor, packing: Packing) -> Tensor:
    """Compute the gradients of a GRU layer's gates.

    Args:
        grad_PH: Gradients of the states from the layer's output. Overwritten by the complete gradients of the states.
        factor_P3H: Factors of the gates' gradients.
        z_PH: The update gate z.
        weight_LGH: Recurrent weights.
        packing: The packing.

    Returns:
        Gradients of shape (P, 3, H): the complete gradients of the states times the factors.
    """
    grad_P3H = torch.empty_like(factor_P3H)
    later: tuple[Tensor, Tensor, Tensor] | None = None
    last = packing.sizes_T[-1]
    for size, dh, dh_1, factor, dg, dg_flat, kept in zip(
        reversed(packing.sizes_T),
        reversed(packing.steps(grad_PH)),
        reversed(packing.steps(grad_PH[:, None])),
        reversed(packing.steps(factor_P3H)),
        reversed(packing.steps(grad_P3H)),
        reversed(packing.steps(grad_P3H.flatten(1))),
        reversed(packing.steps(z_PH)),
        strict=True,
    ):
        if later is not None:
            carried = dh if size == last else dh[:, :last]
            carried.addcmul_(later[0], later[1]).baddbmm_(later[2], weight_LGH)
        torch.mul(dh_1, factor, out=dg)
        later, last = (dh, kept, dg_flat), size
    return grad_P3H


def lstm_forward(
    gates_PG: Tensor, cell_PH: Tensor, squashed_PH: Tensor, hidden_PH: Tensor, weight_LGH: Tensor, packing: Packing
) -> None:
    """Compute the states of an LSTM layer.

    Args:
        gates_PG: Inputs of the gates. Overwritten by i, f, o and g.
        cell_PH, squashed_PH, hidden_PH: Outputs, the cells, their tanh, and the states.
        weight_LGH: Recurrent weights.
        packing: The packing.
    """
    width = hidden_PH.shape[1]
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


def lstm_backward(
    grad_PH: Tensor, factor_P4H: Tensor, slope_PH: Tensor, f_PH: Tensor, weight_LGH: Tensor, packing: Packing
) -> Tensor:
    """Compute the gradients of an LSTM layer's gates.

    Args:
        grad_PH: Gradients of the states from the layer's output. Overwritten.
        factor_P4H: Factors of the gates' gradients.
        slope_PH: Derivative of a state with respect to its cell.
        f_PH: The forget gate f.
        weight_LGH: Recurrent weights.
        packing: The packing.

    Returns:
        Gradients of shape (P, 4, H): the factors times the gradients of the cells, or of the states for o.
    """
    grad_cell_PH, grad_P4H = torch.zeros_like(grad_PH), torch.empty_like(factor_P4H)
    later: tuple[Tensor, Tensor, Tensor] | None = None
    last = packing.sizes_T[-1]
    for size, dh, dc, dc_1, slope, factor, factor_o, dg, dg_o, dg_flat, kept in zip(
        reversed(packing.sizes_T),
        reversed(packing.steps(grad_PH)),
        reversed(packing.steps(grad_cell_PH)),
        reversed(packing.steps(grad_cell_PH[:, None])),
        reversed(packing.steps(slope_PH)),
        reversed(packing.steps(factor_P4H)),
        reversed(packing.steps(factor_P4H[:, 2])),
        reversed(packing.steps(grad_P4H)),
        reversed(packing.steps(grad_P4H[:, 2])),
        reversed(packing.steps(grad_P4H.flatten(1))),
        reversed(packing.steps(f_PH)),
        strict=True,
    ):
        if later is not None:
            whole = size == last
            (dh if whole else dh[:, :last]).baddbmm_(later[2], weight_LGH)
            torch.mul(later[0], later[1], out=dc if whole else dc[:, :last])
        dc.addcmul_(dh, slope)
        torch.mul(dc_1, factor, out=dg)
        torch.mul(dh, factor_o, out=dg_o)
        later, last = (dc, kept, dg_flat), size
    return grad_P4H
