"""Products in C, and the layers whose weights do not change, against torch's."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from fedtext.models.adapted import FrozenLinear, LoRALinear
from fedtext.models.adapters import LoRA
from fedtext.models.native_products import Packed, product, products_in_c, write_product
from fedtext.runtime.compiled import compile_problem
from tests.fedtext.models.native_blocks import Rounded
from tests.loops import nonempty

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1, 1), (7, 300, 40), (50, 8, 64), (9, 513, 70)])
def test_a_packed_factor_gives_the_bits_of_the_plain_one(rows: int, depth: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    left, right = (torch.randn(*shape, generator=generator) for shape in ((rows, depth), (depth, columns)))
    row = torch.randn(columns, generator=generator)
    turned = right.t().contiguous().t()
    for addend in nonempty([None, row]):
        plain = product(left, right, addend)
        assert torch.allclose(plain, left @ right + (0 if addend is None else addend), atol=1e-3)
        for factor in nonempty([turned, Packed.of(right), Packed.of(turned)]):
            assert torch.equal(product(left, factor, addend), plain)
    sums = plain.clone()
    write_product(sums, sums, left, Packed.of(right))
    assert torch.allclose(sums, plain + left @ right, atol=1e-3)


def layer(**keys: Any) -> LoRALinear:
    torch.manual_seed(1)
    made = LoRALinear(torch.nn.Linear(20, 12, bias=keys.pop("bias", True)), LoRA(rank=3, **keys)).double()
    torch.nn.init.normal_(made.lora_B)
    if made.lora_residual is not None:
        torch.nn.init.normal_(made.lora_residual)
    return made


@pytest.mark.parametrize(
    "keys", [{}, {"train": "b"}, {"bias": False}, {"residual": True}, {"dropout": 0.5}], ids=lambda keys: str(keys)
)
@pytest.mark.parametrize("further", [True, False], ids=["", "first"])
def test_an_adapted_layer_and_its_gradients_are_torchs(keys: dict[str, Any], further: bool) -> None:
    made, inputs = layer(**keys), torch.randn(2, 9, 20, dtype=torch.float64, requires_grad=further)
    wanted = [*made.parameters(), inputs][: None if further else -1]
    found = []
    for in_c in nonempty([False, True]):
        torch.manual_seed(2)
        with products_in_c(in_c):
            outputs = made(inputs)
        found.append((outputs, *torch.autograd.grad(outputs.sin().sum(), wanted)))
        assert ("LinearInC" in str(outputs.grad_fn.next_functions)) == (
            in_c and not keys.keys() & {"residual", "dropout"}
        )
    for got, want in nonempty(zip(*found, strict=True)):
        assert torch.allclose(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [3, 700])
@pytest.mark.parametrize("adapted", [False, True], ids=["frozen", "adapted"])
def test_in_bfloat16_products_with_the_weight_alone_are_rounded(adapted: bool, rows: int) -> None:
    made = layer().float() if adapted else FrozenLinear(torch.nn.Linear(20, 12))
    inputs = torch.randn(rows, 20, requires_grad=True)
    wanted = [inputs, *made.parameters()]
    with torch.autocast("cpu", torch.bfloat16), products_in_c(True):
        outputs = made(inputs)
    assert outputs.dtype == torch.float32
    exact = Rounded.apply(inputs, made.weight, made.bias)
    if isinstance(made, LoRALinear):
        exact = exact + made.scale * inputs @ made.lora_A.t() @ made.lora_B.t()
    assert torch.allclose(outputs, exact, atol=1e-5)
    upstream = torch.randn(rows, 12)
    found, expected = (torch.autograd.grad(each, wanted, upstream) for each in (outputs, exact))
    for got, want in nonempty(zip(found, expected, strict=True)):
        assert torch.allclose(got, want, rtol=1e-5, atol=1e-4)


def test_what_is_made_of_a_weight_follows_it() -> None:
    frozen, inputs = FrozenLinear(torch.nn.Linear(20, 12)), torch.randn(5, 20)

    def check() -> None:
        with products_in_c(True):
            assert torch.allclose(frozen(inputs), linear(inputs, frozen.weight, frozen.bias), atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(frozen(inputs), linear(inputs, frozen.weight, frozen.bias))
            with products_in_c(True):
                found = frozen(inputs)
        rounded = Rounded.apply(inputs, frozen.weight, frozen.bias)
        assert torch.allclose(found, rounded, atol=1e-5)

    check()
    packed = frozen.packed()
    assert frozen.packed() is packed, "it is made once"
    frozen.weight.mul_(2)
    check()
    frozen.weight = torch.randn(12, 20)
    check()
    frozen.double()
    inputs = inputs.double()
    with products_in_c(True):
        assert torch.allclose(frozen(inputs), linear(inputs, frozen.weight, frozen.bias), rtol=0, atol=1e-12)


def copied(frozen: FrozenLinear, how: str) -> FrozenLinear:
    made: FrozenLinear = copy.deepcopy(frozen) if how == "deepcopy" else pickle.loads(pickle.dumps(frozen))
    return made


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_of_a_layer_has_nothing_that_was_made_of_another_weight(how: str) -> None:
    frozen, inputs = FrozenLinear(torch.nn.Linear(20, 12)), torch.randn(5, 20)
    frozen.weight.mul_(1)  # a copy counts its changes anew
    frozen.packed()
    other = copied(frozen, how)
    other.load_state_dict({"weight": torch.randn(12, 20), "bias": torch.randn(12)})
    again = copied(other, how)
    for made in nonempty([other, again]):
        with products_in_c(True):
            assert torch.allclose(made(inputs), linear(inputs, made.weight, made.bias), atol=1e-5)
    again.weight.data = torch.randn(12, 20)
    with products_in_c(True):
        assert torch.allclose(again(inputs), linear(inputs, again.weight, again.bias), atol=1e-5)


def test_a_layer_takes_what_torchs_takes() -> None:
    made = layer()
    with products_in_c(True):
        none = torch.randn(1, 0, 20, dtype=torch.float64, requires_grad=True)
        grads = torch.autograd.grad(made(none).sum(), [none, made.lora_A, made.lora_B])
        assert not any(grad.any() for grad in nonempty(grads))
        one = torch.randn(20, dtype=torch.float64)
        same = one.expand(7, 20)
        assert torch.allclose(made(one), made(same)[0], rtol=0, atol=1e-12)
        got = torch.autograd.grad(made(same).sin().sum(), made.lora_A)[0]
    assert torch.allclose(got, torch.autograd.grad(made(same).sin().sum(), made.lora_A)[0], rtol=0, atol=1e-12)
    with torch.autocast("cpu", torch.bfloat16):
        assert made.double()(one).dtype == linear(one, made.weight).dtype == torch.float64
    frozen, inputs = FrozenLinear(torch.nn.Linear(20, 12)), torch.randn(5, 20)
    with torch.inference_mode(), products_in_c(True):
        changed, given = FrozenLinear(torch.nn.Linear(20, 12)), torch.randn(5, 20)
        changed.weight.mul_(2)
        assert torch.allclose(changed(given), linear(given, changed.weight, changed.bias), atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            frozen(inputs)
    with torch.autocast("cpu", torch.bfloat16), products_in_c(True):  # with what was made of its weight before
        outputs = frozen(inputs.requires_grad_())
    assert torch.autograd.grad(outputs.sum(), inputs)[0].any()


def test_a_factor_whose_rows_are_one_is_read_as_such() -> None:
    left, row = torch.randn(3, 7), torch.randn(1, 32)
    assert torch.allclose(product(left, row.expand(7, 32)), left @ row.expand(7, 32), atol=1e-5)


def test_a_weight_that_changes_before_the_backward_pass_is_an_error() -> None:
    frozen, inputs = FrozenLinear(torch.nn.Linear(20, 12)), torch.randn(5, 20, requires_grad=True)
    with products_in_c(True):
        outputs = frozen(inputs)
    frozen.weight.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


def test_factors_of_any_strides_and_weights_that_nothing_keeps_are_read_right() -> None:
    made, inputs, found = layer(), torch.randn(9, 20, dtype=torch.float64), []
    made.lora_A = torch.nn.Parameter(torch.randn(20, 3, dtype=torch.float64).t())
    made.lora_B = torch.nn.Parameter(torch.randn(3, 12, dtype=torch.float64).t())
    for in_c in nonempty([False, True]):
        with products_in_c(in_c):
            outputs = made(inputs)
        found.append((outputs, *torch.autograd.grad(outputs.sin().sum(), made.parameters())))
    for want, got in nonempty(zip(*found, strict=True)):
        assert torch.allclose(got, want, rtol=1e-11, atol=1e-11)
    with torch.inference_mode():
        whole = LoRALinear(torch.nn.Linear(768, 768), LoRA(rank=3))
        torch.nn.init.normal_(whole.lora_B)
        inputs = torch.randn(5, 768)
        with products_in_c(True):
            found = [whole(inputs) for _ in range(3)]
        for each in nonempty(found):
            assert torch.allclose(each, whole(inputs), atol=1e-4)


def test_numbers_of_two_types_are_refused() -> None:
    with products_in_c(True), pytest.raises(AssertionError):
        layer()(torch.randn(5, 20))


def test_gradients_are_of_the_weight_that_was_used() -> None:
    made, inputs = layer(), torch.randn(5, 20, dtype=torch.float64, requires_grad=True)
    want = torch.autograd.grad(made(inputs).sum(), inputs)[0]
    with products_in_c(True):
        outputs = made(inputs)
    made.weight = torch.zeros_like(made.weight)
    assert torch.allclose(torch.autograd.grad(outputs.sum(), inputs)[0], want, rtol=0, atol=1e-12)
