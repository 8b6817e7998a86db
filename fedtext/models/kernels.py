"""The loops of models/loops.py as Triton kernels: one launch for all steps of a layer instead of several for each step.

A program computes the steps of one lane for a block of its texts. Texts do not depend on each other, so programs never
wait for one another. A text's state stays in the program's registers. Products load the previous step from memory piece
by piece, since it would not fit into the registers together with all weights of a gate.

This module can be imported if Triton is installed; torch with CUDA includes it. With TRITON_INTERPRET=1 in the
environment Triton's interpreter runs the kernels on the CPU, very slowly, for tests.

Legend as in models/steps.py; inside a kernel B is a block of texts, and H is padded to a power of two. Padding is
loaded as zero and not stored. ``kept`` is the gate that keeps the state (z) or the cell (f): a view of the gates, with
the same distance between rows.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedtext.models.packing import BLOCK, Packing

TEXTS = tl.constexpr(BLOCK)
PIECE = tl.constexpr(16)  # the least that every version of Triton sums over; larger ones take more registers
# One stage: no piece is copied ahead, which would take as much shared memory again for each.
OPTIONS = {"num_warps": 8, "num_stages": 1, "enable_fp_fusion": True}


@triton.jit
def _places(starts, step, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The rows of this program's texts at a step, B x 1, and its units, 1 x H; and of both, which there are."""
    start = tl.load(starts + step)
    size = tl.load(starts + step + 1) - start
    text = tl.program_id(1) * TEXTS + tl.arange(0, TEXTS)[:, None]
    unit = tl.arange(0, PADDED)[None, :]
    return tl.num_programs(0) * start + tl.program_id(0) * size + text, unit, text < size, unit < WIDTH


@triton.jit
def _dot(left, right, onto):
    return tl.dot(left, right, onto, input_precision="ieee", out_dtype=onto.dtype)


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2 * _sigmoid(2 * x) - 1  # Triton's own language has none


@triton.jit
def _gru_forward(gates, new, hidden, weight, starts, depths, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    weight += tl.program_id(0).to(tl.int64) * 3 * WIDTH * WIDTH  # H x G
    before = tl.zeros((TEXTS, PADDED), hidden.dtype.element_ty)
    earlier = tl.zeros((TEXTS, 1), tl.int64)
    for step in range(0, tl.load(depths + tl.program_id(1))):
        row, unit, texts, units = _places(starts, step, WIDTH, PADDED)
        at, to, there = row * 3 * WIDTH + unit, row * WIDTH + unit, texts & units
        r = tl.load(gates + at, there, 0.0)
        z = tl.load(gates + at + WIDTH, there, 0.0)
        recurrent = tl.load(gates + at + 2 * WIDTH, there, 0.0)
        n = tl.load(new + to, there, 0.0)
        for first in range(0, WIDTH, PIECE):
            across, down = first + tl.arange(0, PIECE)[None, :], first + tl.arange(0, PIECE)[:, None]
            left = tl.load(hidden + earlier * WIDTH + across, texts & (across < WIDTH) & (step > 0), 0.0)
            right, square = weight + down * 3 * WIDTH + unit, (down < WIDTH) & units
            weight_r = tl.load(right, square, 0.0)
            weight_z = tl.load(right + WIDTH, square, 0.0)
            weight_n = tl.load(right + 2 * WIDTH, square, 0.0)
            r = _dot(left, weight_r, r)
            z = _dot(left, weight_z, z)
            recurrent = _dot(left, weight_n, recurrent)
        r, z = _sigmoid(r), _sigmoid(z)
        n = _tanh(n + r * recurrent)
        before = n + z * (before - n)
        tl.store(gates + at, r, there)
        tl.store(gates + at + WIDTH, z, there)
        tl.store(gates + at + 2 * WIDTH, recurrent, there)
        tl.store(new + to, n, there)
        tl.store(hidden + to, before, there)
        earlier = row
        tl.debug_barrier()  # other threads use these values in the next step


@triton.jit
def _lstm_forward(gates, cell, squashed, hidden, weight, starts, depths, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    weight += tl.program_id(0).to(tl.int64) * 4 * WIDTH * WIDTH  # H x G
    c = tl.zeros((TEXTS, PADDED), hidden.dtype.element_ty)
    earlier = tl.zeros((TEXTS, 1), tl.int64)
    for step in range(0, tl.load(depths + tl.program_id(1))):
        row, unit, texts, units = _places(starts, step, WIDTH, PADDED)
        at, to, there = row * 4 * WIDTH + unit, row * WIDTH + unit, texts & units
        i = tl.load(gates + at, there, 0.0)
        f = tl.load(gates + at + WIDTH, there, 0.0)
        o = tl.load(gates + at + 2 * WIDTH, there, 0.0)
        g = tl.load(gates + at + 3 * WIDTH, there, 0.0)
        for first in range(0, WIDTH, PIECE):
            across, down = first + tl.arange(0, PIECE)[None, :], first + tl.arange(0, PIECE)[:, None]
            left = tl.load(hidden + earlier * WIDTH + across, texts & (across < WIDTH) & (step > 0), 0.0)
            right, square = weight + down * 4 * WIDTH + unit, (down < WIDTH) & units
            weight_i = tl.load(right, square, 0.0)
            weight_f = tl.load(right + WIDTH, square, 0.0)
            weight_o = tl.load(right + 2 * WIDTH, square, 0.0)
            weight_g = tl.load(right + 3 * WIDTH, square, 0.0)
            i = _dot(left, weight_i, i)
            f = _dot(left, weight_f, f)
            o = _dot(left, weight_o, o)
            g = _dot(left, weight_g, g)
        i, f, o, g = _sigmoid(i), _sigmoid(f), _sigmoid(o), _tanh(g)
        c = f * c + i * g
        tanh_c = _tanh(c)
        tl.store(gates + at, i, there)
        tl.store(gates + at + WIDTH, f, there)
        tl.store(gates + at + 2 * WIDTH, o, there)
        tl.store(gates + at + 3 * WIDTH, g, there)
        tl.store(cell + to, c, there)
        tl.store(squashed + to, tanh_c, there)
        tl.store(hidden + to, o * tanh_c, there)
        earlier = row
        tl.debug_barrier()


@triton.jit
def _back(grads, weight, texts, onto, GATES: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """``onto``, B x H, and the gradients of all gates, B x G, times this lane's weights, G x H."""
    unit = tl.arange(0, PADDED)[None, :]
    total = tl.zeros((TEXTS, PADDED), onto.dtype)
    for first in range(0, GATES * WIDTH, PIECE):
        across, down = first + tl.arange(0, PIECE)[None, :], first + tl.arange(0, PIECE)[:, None]
        left = tl.load(grads + across, texts & (across < GATES * WIDTH), 0.0)
        right = tl.load(weight + down * WIDTH + unit, (down < GATES * WIDTH) & (unit < WIDTH), 0.0)
        total = _dot(left, right, total)
    return onto + total


@triton.jit
def _gru_backward(grad, factor, kept, grad_gates, weight, starts, depths, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    weight += tl.program_id(0).to(tl.int64) * 3 * WIDTH * WIDTH  # G x H
    carried = tl.zeros((TEXTS, PADDED), grad.dtype.element_ty)  # by the state, from the step after
    later, continues = tl.zeros((TEXTS, 1), tl.int64), tl.zeros((TEXTS, 1), tl.int1)
    steps = tl.load(depths + tl.program_id(1))
    for done in range(0, steps):
        row, unit, texts, units = _places(starts, steps - 1 - done, WIDTH, PADDED)
        at, to, there = row * 3 * WIDTH + unit, row * WIDTH + unit, texts & units
        dh = tl.load(grad + to, there, 0.0) + carried
        r = tl.load(factor + at, there, 0.0)
        z = tl.load(factor + at + WIDTH, there, 0.0)
        n = tl.load(factor + at + 2 * WIDTH, there, 0.0)
        share = tl.load(kept + at, there, 0.0)
        dh = _back(grad_gates + later * 3 * WIDTH, weight, continues, dh, 3, WIDTH, PADDED)
        tl.store(grad + to, dh, there)
        tl.store(grad_gates + at, dh * r, there)
        tl.store(grad_gates + at + WIDTH, dh * z, there)
        tl.store(grad_gates + at + 2 * WIDTH, dh * n, there)
        carried = dh * share
        later, continues = row, texts
        tl.debug_barrier()


@triton.jit
def _lstm_backward(
    grad, factor, slope, kept, grad_gates, weight, starts, depths, WIDTH: tl.constexpr, PADDED: tl.constexpr
):
    weight += tl.program_id(0).to(tl.int64) * 4 * WIDTH * WIDTH  # G x H
    carried = tl.zeros((TEXTS, PADDED), grad.dtype.element_ty)  # by the cell, from the step after
    later, continues = tl.zeros((TEXTS, 1), tl.int64), tl.zeros((TEXTS, 1), tl.int1)
    steps = tl.load(depths + tl.program_id(1))
    for done in range(0, steps):
        row, unit, texts, units = _places(starts, steps - 1 - done, WIDTH, PADDED)
        at, to, there = row * 4 * WIDTH + unit, row * WIDTH + unit, texts & units
        dh = tl.load(grad + to, there, 0.0)
        i = tl.load(factor + at, there, 0.0)
        f = tl.load(factor + at + WIDTH, there, 0.0)
        o = tl.load(factor + at + 2 * WIDTH, there, 0.0)
        g = tl.load(factor + at + 3 * WIDTH, there, 0.0)
        by_state, share = tl.load(slope + to, there, 0.0), tl.load(kept + at, there, 0.0)
        dh = _back(grad_gates + later * 4 * WIDTH, weight, continues, dh, 4, WIDTH, PADDED)
        dc = carried + dh * by_state
        tl.store(grad_gates + at, dc * i, there)
        tl.store(grad_gates + at + WIDTH, dc * f, there)
        tl.store(grad_gates + at + 2 * WIDTH, dh * o, there)
        tl.store(grad_gates + at + 3 * WIDTH, dc * g, there)
        carried = dc * share
        later, continues = row, texts
        tl.debug_barrier()


def padded(width: int) -> int:
    """Return the width with which a kernel computes."""
    return max(BLOCK, triton.next_power_of_2(width))


def _launch(kernel: Any, packing: Packing, width: int, *tensors: Tensor) -> None:
    grid = packing.lanes, len(packing.depths)
    with torch.cuda.device_of(tensors[0]):
        kernel[grid](*tensors, packing.starts, packing.depths, width, padded(width), **OPTIONS)


def gru_forward(gates_PG: Tensor, new_PH: Tensor, hidden_PH: Tensor, weight_LGH: Tensor, packing: Packing) -> None:
    """Do the same as ``loops.gru_forward``."""
    weight_LHG = weight_LGH.transpose(1, 2).contiguous()
    _launch(_gru_forward, packing, hidden_PH.shape[1], gates_PG, new_PH, hidden_PH, weight_LHG)


def gru_backward(grad_PH: Tensor, factor_P3H: Tensor, z_PH: Tensor, weight_LGH: Tensor, packing: Packing) -> Tensor:
    """Do the same as ``loops.gru_backward``."""
    grad_P3H, weight = torch.empty_like(factor_P3H), weight_LGH.contiguous()
    _launch(_gru_backward, packing, grad_PH.shape[1], grad_PH, factor_P3H, z_PH, grad_P3H, weight)
    return grad_P3H


def lstm_forward(
    gates_PG: Tensor, cell_PH: Tensor, squashed_PH: Tensor, hidden_PH: Tensor, weight_LGH: Tensor, packing: Packing
) -> None:
    """Do the same as ``loops.lstm_forward``."""
    weight_LHG = weight_LGH.transpose(1, 2).contiguous()
    _launch(_lstm_forward, packing, hidden_PH.shape[1], gates_PG, cell_PH, squashed_PH, hidden_PH, weight_LHG)


def lstm_backward(
    grad_PH: Tensor, factor_P4H: Tensor, slope_PH: Tensor, f_PH: Tensor, weight_LGH: Tensor, packing: Packing
) -> Tensor:
    """Do the same as ``loops.lstm_backward``."""
    grad_P4H, weight = torch.empty_like(factor_P4H), weight_LGH.contiguous()
    _launch(_lstm_backward, packing, grad_PH.shape[1], grad_PH, factor_P4H, slope_PH, f_PH, grad_P4H, weight)
    return grad_P4H
