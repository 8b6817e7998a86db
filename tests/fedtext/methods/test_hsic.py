"""The gradient of HSIC against torch's own derivation, and against finite differences."""

import pytest
import torch
from torch import Tensor

from fedtext.methods.hsic import HSIC, Bandwidth, gram, hsic
from fedtext.runtime.compiled import compile_problem
from tests.loops import nonempty


def features(size: int, *widths: int, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(size)
    drawn = [scale * torch.randn(size, width, dtype=torch.float64, generator=generator) + 5 for width in widths]
    return [tensor.requires_grad_() for tensor in drawn]


def by_definition(o_s_BF: Tensor, o_p_BF: Tensor, bandwidth: Bandwidth) -> Tensor:
    size = len(o_s_BF)
    centring = torch.eye(size, dtype=torch.float64) - 1 / size
    return torch.trace(gram(o_s_BF, bandwidth) @ centring @ gram(o_p_BF, bandwidth) @ centring) / (size - 1) ** 2


C = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
NATIVE = pytest.mark.parametrize("native", [False, pytest.param(True, marks=C)], ids=["torch", "native"])


@NATIVE
@pytest.mark.parametrize("bandwidth", ["median", 3.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_value_and_gradient_are_those_of_the_definition(bandwidth: Bandwidth, scale: float, native: bool) -> None:
    for size, widths in nonempty([(2, (1, 1)), (3, (4, 2)), (8, (6, 6)), (33, (17, 40))]):
        given = features(size, *widths, scale=scale)
        mine, theirs = hsic(*given, bandwidth, native), by_definition(*given, bandwidth)
        assert mine.item() == pytest.approx(theirs.item(), rel=1e-9, abs=1e-12)
        for one, other in nonempty(
            zip(*(torch.autograd.grad(-2.5 * value, given) for value in (mine, theirs)), strict=True)
        ):
            assert torch.allclose(one, other, rtol=1e-9, atol=1e-9 * other.abs().max().item() + 1e-12)


@NATIVE
@pytest.mark.parametrize("scale", [0.03, 0.001])
def test_distances_far_below_the_bandwidth_are_not_lost_in_float32(scale: float, native: bool) -> None:
    """Kernels are nearly 1 then, and centring cancels all but what they lack."""
    exact = [scale * (tensor.detach() - 5) for tensor in features(32, 64, 64)]
    given = [tensor.float().requires_grad_() for tensor in exact]
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    mine, theirs = hsic(*given, 1.0, native), hsic(*exact, 1.0)
    assert mine.item() == pytest.approx(theirs.item(), rel=3e-6)
    pairs = zip(torch.autograd.grad(mine, given), torch.autograd.grad(theirs, exact), strict=True)
    for one, other in nonempty(pairs):
        assert (one - other).norm() < 3e-6 * other.norm()


@NATIVE
def test_rounding_does_not_make_it_negative(native: bool) -> None:
    """Equation 7 is a squared norm. With a bandwidth far above all squared distances it is about 1e-20."""
    generator = torch.Generator().manual_seed(0)
    drawn = [[torch.randn(16, 6, generator=generator) for _ in range(2)] for _ in range(40)]
    values = [hsic(*pair, 1e10, native).item() for pair in drawn]
    assert all(0 <= value < 1e-15 for value in nonempty(values))
    assert len(set(values)) > 10, "those that are positive stay as they are"


@C
def test_not_a_number_is_the_result_of_one_in_native_too() -> None:
    """As of a client that diverges in a stack, beside one that does not."""
    (given, _), lost = features(8, 5, 3), torch.full((8, 5), float("nan"), dtype=torch.float64)
    both = torch.stack([given.detach(), lost])
    values = torch.vmap(lambda one_BF, other_BF: hsic(one_BF, other_BF, native=True))(both, both)
    assert values[0].item() == pytest.approx(hsic(given, given).item(), rel=1e-9)
    assert values[1].isnan()


def test_both_gradients_pass_torchs_own_check() -> None:
    given = features(4, 3, 2)
    assert [output.requires_grad for output in HSIC.apply(*given, 3.0)] == [True, False, False, False, False]
    assert torch.autograd.gradcheck(lambda *each: hsic(*each, 3.0), given)
    assert torch.autograd.gradgradcheck(lambda *each: hsic(*each, 3.0), given)


def test_the_gradient_of_the_gradient_is_that_of_the_definition() -> None:
    """Where b is the median, which is a constant."""
    given = features(5, 3, 3)
    found = []
    for value in (hsic(*given), by_definition(*given, "median")):
        first = torch.autograd.grad(value, given, create_graph=True)
        found.append(torch.autograd.grad(sum(grad.square().sum() for grad in first), given))
    for one, other in nonempty(zip(*found, strict=True)):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)


def test_a_large_common_offset_costs_no_digits() -> None:
    """Of features that float32 has exactly with and without it."""
    near = [(8 * tensor.detach()).round().float() / 8 for tensor in features(6, 3, 3)]
    far = [tensor + 2.0**14 for tensor in near]
    found = []
    for given in (near, far):
        leaves = [tensor.requires_grad_() for tensor in given]
        found.append(torch.autograd.grad(hsic(*leaves), leaves))
    for one, other in nonempty(zip(*found, strict=True)):
        assert (one - other).abs().max() <= 1e-4 * one.abs().max()


def test_only_what_needs_a_gradient_gets_one() -> None:
    o_s_BF, o_p_BF = features(4, 3, 3)
    hsic(o_s_BF, o_p_BF.detach()).backward()
    assert o_s_BF.grad is not None
    assert torch.autograd.grad(hsic(o_s_BF, o_p_BF), o_s_BF)[0].equal(o_s_BF.grad)


def test_clients_side_by_side_have_the_gradients_of_each_alone() -> None:
    clients = [features(4, 3, 3, scale=scale) for scale in (1.0, 2.0, 5.0)]
    together = [torch.stack(tensors).detach().requires_grad_() for tensors in zip(*clients, strict=True)]
    values_C = torch.vmap(hsic)(*together)
    grads = torch.autograd.grad(values_C.sum(), together)
    for place, given in enumerate(nonempty(clients)):
        value = hsic(*given)
        assert values_C[place].item() == pytest.approx(value.item(), rel=1e-12)
        for one, other in nonempty(zip(torch.autograd.grad(value, given), grads, strict=True)):
            assert torch.allclose(one, other[place], rtol=1e-9, atol=1e-14)


@NATIVE
@pytest.mark.parametrize("noise", [0.0, 1e-7], ids=["equal", "rounding"])
def test_texts_that_are_equal_have_no_gradient_of_rounding(noise: float, native: bool) -> None:
    """Most of a batch are one text, so that the median distance is 0, or what rounding has left."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(2, 128, generator=generator)[[0, 0, 0, 1, 0, 0, 0, 0]] for _ in range(2)]
    given = [(one * (1 + noise * torch.randn(one.shape, generator=generator))).requires_grad_() for one in drawn]
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    value = hsic(*given, native=native)
    kernel = torch.block_diag(torch.ones(7, 7), torch.ones(1, 1)).double()
    expected = torch.trace(kernel @ (torch.eye(8) - 1 / 8).double() @ kernel @ (torch.eye(8) - 1 / 8).double()) / 49
    assert value.item() == pytest.approx(expected.item(), rel=1e-3)
    grads, theirs = torch.autograd.grad(value, given), torch.autograd.grad(hsic(*exact), exact)
    for one, other in nonempty(zip(grads, theirs, strict=True)):
        assert torch.allclose(one.double(), other, rtol=1e-2, atol=1e-6)
        assert one.abs().max() < 10
