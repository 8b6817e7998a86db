"""What is between the products of a block in C: activations, norms, dropout and rounding."""

import ctypes

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm

from fedtext.models.native_attention import Dropout
from fedtext.models.native_linear import Panels
from fedtext.models.native_transformer import Adapted, library
from fedtext.runtime.compiled import address, compile_problem
from tests.loops import nonempty
from tests.native_functions import add_dropped, pointers
from tests.native_functions import gelu as gelu_in_c

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())


@pytest.mark.parametrize("kind", [0, 1])
def test_gelu_and_its_derivative_are_torchs(kind: int) -> None:
    """In 32 bits they are as near to the exact ones as torch's own."""
    approximate = ("none", "tanh")[kind]
    exact = torch.cat([torch.linspace(-15, 15, 20_001), torch.tensor([-60.0, 60.0, 0.0])]).double().requires_grad_()
    wanted = gelu(exact, approximate=approximate)
    slopes = torch.autograd.grad(wanted.sum(), exact)[0]
    for dtype, bound in nonempty([(torch.float64, 1e-13), (torch.float32, 5e-7)]):
        got, slope = gelu_in_c(kind, exact.detach().to(dtype))
        assert torch.allclose(got.double(), wanted, rtol=bound, atol=bound)
        assert torch.allclose(slope.double(), slopes, rtol=bound, atol=bound)
    assert torch.stack(gelu_in_c(kind, torch.tensor([torch.nan, 1.0]))).isnan().tolist() == [[True, False]] * 2


@pytest.mark.parametrize("width", [1, 5, 16, 37])
def test_layer_norm_and_its_gradient_are_torchs(width: int) -> None:
    torch.manual_seed(width)
    module = nn.LayerNorm(width, eps=1e-3).double()
    nn.init.normal_(module.weight)
    nn.init.normal_(module.bias)
    inputs, grad = (torch.randn(4, width, dtype=torch.float64) for _ in range(2))
    inputs.requires_grad_()
    wanted = layer_norm(inputs, (width,), module.weight, module.bias, 1e-3)
    functions, size = library(torch.float64), (ctypes.c_int64(4), ctypes.c_int64(width))
    (normal, got), factors = (torch.empty_like(grad) for _ in range(2)), torch.empty(4, dtype=torch.float64)
    given = *pointers(inputs, module.weight, module.bias), ctypes.c_double(1e-3)
    functions.normalize(*size, *given, *pointers(normal, factors, got))
    assert torch.allclose(got, wanted, rtol=0, atol=1e-12)
    slopes = torch.autograd.grad(wanted, inputs, grad)[0]
    functions.normalize_back(*size, *pointers(normal, factors, module.weight, grad))
    assert torch.allclose(grad, slopes, rtol=0, atol=1e-12)


def test_dropout_leaves_its_share_and_depends_on_place_and_key() -> None:
    torch.manual_seed(3)
    values, first, second = torch.ones(1000, 37), Dropout.drawn(0.25), Dropout.drawn(0.25)
    dropped, other = add_dropped(values, first), add_dropped(values, second)
    assert sorted(set(dropped.flatten().tolist())) == pytest.approx([0, 4 / 3])
    kept, others = dropped > 0, other > 0
    for share, expected in nonempty(
        [
            (kept, 0.75),
            (kept & others, 0.75**2),
            (kept[:, 1:] & kept[:, :-1], 0.75**2),
            (kept[1:] & kept[:-1], 0.75**2),
        ]
    ):
        assert share.double().mean() == pytest.approx(expected, abs=0.01)
    assert torch.equal(add_dropped(values[:5], first), dropped[:5]), "the others do not matter"
    start = torch.randn(1000, 37)
    assert torch.allclose(add_dropped(values, first, start), start + dropped)


def test_numbers_are_rounded_to_bfloat16_as_by_torch() -> None:
    drawn = torch.randn(4, 37, generator=torch.Generator().manual_seed(1)) * 10.0 ** torch.arange(-18.5, 18.5)
    drawn[0, :5] = torch.tensor([torch.inf, -torch.inf, torch.nan, 1 + 2**-8, 1 + 3 * 2**-8])
    for each in nonempty(drawn.t()):
        row = Adapted(1, 1, 4, 0, 0.0)
        made, weight = Panels.halves(each[:, None].contiguous()), torch.ones(1, 1)
        row.panels, row.back = address(made.forward), address(made.back)
        outputs, memory = torch.empty(1, 4), torch.empty(1000)
        library(torch.float32).adapted_outputs(ctypes.byref(row), *pointers(weight, memory, None, outputs))
        assert torch.equal(outputs[0].nan_to_num(7.0), each.bfloat16().float().nan_to_num(7.0))
        assert torch.equal(outputs[0].isnan(), each.isnan())
