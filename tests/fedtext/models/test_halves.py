"""Products of numbers in bfloat16 in C: each sum, in its order, bit by bit.

Legend: M rows, K the inner width, N columns.
"""

import ctypes

import pytest
import torch
from torch import Tensor

from fedtext.models.native_linear import Panels
from fedtext.models.native_transformer import Adapted, in_tiles, library
from fedtext.runtime.compiled import address, compile_problem
from tests.fedtext.models.native_blocks import rounded
from tests.native_functions import pointers

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())

STEP = 32  # numbers that are summed apart in tile registers


def ordered(start_MN: Tensor, left_MK: Tensor, right_KN: Tensor) -> Tensor:
    """Add up a product of numbers in bfloat16 in the order in which this processor does.

    Products of two such numbers are exact in float32.
    """
    left_KM1, right_K1N = left_MK.t()[:, :, None], right_KN[:, None]
    sums_MN = start_MN.clone()
    if not in_tiles():
        for left_M1, right_1N in zip(left_KM1, right_K1N, strict=True):
            sums_MN += left_M1 * right_1N
        return sums_MN
    for first in range(0, len(right_KN), STEP):
        parts = [torch.zeros_like(sums_MN), torch.zeros_like(sums_MN)]
        for k in range(first, min(first + STEP, len(right_KN))):
            parts[k % 2] += left_KM1[k] * right_K1N[k]
        sums_MN += parts[0] + parts[1]
    return sums_MN


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [
        (1, 1, 1),
        (3, 31, 15),
        (16, 32, 16),
        (17, 33, 65),
        (32, 64, 32),
        (49, 100, 17),
        (5, 1100, 48),
        (2, 16500, 40),  # wider than a block
        (33, 8200, 130),  # in blocks of its columns, and of its rows for the gradients
    ],
)
def test_sums_have_the_bits_of_their_order(rows: int, inputs: int, outputs: int, biased: bool) -> None:
    torch.manual_seed(rows + inputs)
    inputs_MK, weight_NK = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    bias_N, grad_MN, start_MK = torch.randn(outputs), torch.randn(rows, outputs), torch.randn(rows, inputs)
    bias, start = (bias_N, start_MK) if biased else (None, None)
    layer, panels, functions = Adapted(rows, inputs, outputs, 0, 0.0), Panels.halves(weight_NK), library(torch.float32)
    layer.panels, layer.back, layer.bias_O = address(panels.forward), address(panels.back), address(bias)
    memory = torch.empty(2 * (rows + 16) * (max(inputs, outputs) + STEP))
    outputs_MN, sums_MK = torch.empty(rows, outputs), torch.empty(rows, inputs)
    functions.adapted_outputs(ctypes.byref(layer), *pointers(inputs_MK, memory, None, outputs_MN))
    given = pointers(inputs_MK, None, grad_MN, start, memory, None, sums_MK)
    functions.adapted_gradients(ctypes.byref(layer), *given)
    zero = torch.zeros(())
    wanted_MN = ordered((bias_N if biased else zero).expand(rows, outputs), rounded(inputs_MK), rounded(weight_NK).t())
    wanted_MK = ordered((start_MK if biased else zero).expand(rows, inputs), rounded(grad_MN), rounded(weight_NK))
    assert torch.equal(outputs_MN, wanted_MN)
    assert torch.equal(sums_MK, wanted_MK)
