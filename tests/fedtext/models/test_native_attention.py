"""Engine native in transformers: attention, and the products of layers that do not change, against torch's."""

import copy
import os
import pickle
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention

from fedtext.methods import FedAvg
from fedtext.models.adapted import FrozenLinear, LoRALinear
from fedtext.models.adapters import LoRA
from fedtext.models.batch import Batch
from fedtext.models.causal import CausalLanguageModel
from fedtext.models.native_attention import attend, kept_weights
from fedtext.models.native_products import Packed, product, products_in_c, write_product
from fedtext.models.parts import Parts
from fedtext.models.transformer import TransformerClassifier
from fedtext.runtime.compiled import compile_problem
from fedtext.testing.runs import check_run
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.loops import nonempty

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())

LENGTHS = (7, 1, 33, 300, 16)  # more than the rows of a product's panels, and less than a vector
EVERY = ["query", "key", "value", "output", "up", "down"]
LATE = {"personalize": None, "every": 2}
GPT = {"name": "causal", "embedding": {"dim": 8}, "layers": 2, "heads": 2, "positions": 40, "dropout": 0.0}


def starts_of(*lengths: int) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def drawn(width: int, dtype: torch.dtype = torch.float64, tokens: int = sum(LENGTHS)) -> list[Tensor]:
    generator = torch.Generator().manual_seed(width)
    return [torch.randn(tokens, width, dtype=dtype, generator=generator).requires_grad_() for _ in range(3)]


def expected(
    parts: list[Tensor], heads: int, scale: float, causal: bool, weights: list[Tensor] | None = None
) -> Tensor:
    """Text by text, by torch's function or, with factors of the weights, as a formula."""
    found, first = [], 0
    for number, length in enumerate(LENGTHS):
        query, key, value = (part[first : first + length].unflatten(1, (heads, -1)).transpose(0, 1) for part in parts)
        first += length
        if weights is None:
            out = scaled_dot_product_attention(query, key, value, scale=scale, is_causal=causal)
        else:
            out = torch.softmax(scale * query @ key.transpose(1, 2), -1) * weights[number] @ value
        found.append(out.transpose(0, 1).flatten(1))
    return torch.cat(found)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "width"), [(1, 5), (3, 8), (2, 300)])
def test_attention_and_its_gradients_are_torchs(heads: int, width: int, causal: bool) -> None:
    parts = drawn(heads * width)
    got = attend(*parts, starts_of(*LENGTHS), heads, 0.3, causal=causal)
    want = expected(parts, heads, 0.3, causal)
    assert torch.allclose(got, want, rtol=0, atol=1e-12)
    grad = torch.randn_like(got)
    for one, other in nonempty(zip(*(torch.autograd.grad(of, parts, grad) for of in (got, want)), strict=True)):
        assert torch.allclose(one, other, rtol=0, atol=1e-11)


def test_large_products_do_not_overflow() -> None:
    parts = [1e3 * part.detach() for part in drawn(8, torch.float32)]
    got = attend(*parts, starts_of(*LENGTHS), 2, 1.0)
    assert torch.allclose(got, expected(parts, 2, 1.0, False), rtol=1e-4, atol=1e-2)
    parts[0][3, 0] = torch.nan
    got = attend(*parts, starts_of(*LENGTHS), 2, 1.0)
    assert got[3, :4].isnan().all()
    assert not got[:, 4:].isnan().any(), "the other head"
    assert not got[7:].isnan().any(), "the other texts"


def test_the_bits_of_a_text_do_not_depend_on_the_others() -> None:
    parts = drawn(24, torch.float32)
    together = attend(*parts, starts_of(*LENGTHS), 3, 0.3)
    grads = torch.autograd.grad(together.square().sum(), parts)
    first = 0
    for length in nonempty(LENGTHS):
        own = [part.detach()[first : first + length].clone().requires_grad_() for part in parts]
        alone = attend(*own, starts_of(length), 3, 0.3)
        assert torch.equal(alone, together[first : first + length])
        for got, whole in nonempty(zip(torch.autograd.grad(alone.square().sum(), own), grads, strict=True)):
            assert torch.equal(got, whole[first : first + length])
        first += length


def test_dropout_leaves_weights_out_and_scales_the_others() -> None:
    parts, starts, heads = drawn(8), starts_of(*LENGTHS), 2
    torch.manual_seed(4)
    got = attend(*parts, starts, heads, 0.3, dropout=0.25)
    torch.manual_seed(4)
    kept = kept_weights(starts, heads, 0.25)
    assert kept.double().mean() == pytest.approx(0.75, abs=0.01)
    sizes = [heads * length**2 for length in LENGTHS]
    factors = [
        part.view(heads, length, length).double() / 0.75
        for part, length in zip(kept.split(sizes), LENGTHS, strict=True)
    ]
    want = expected(parts, heads, 0.3, False, factors)
    assert torch.allclose(got, want, rtol=0, atol=1e-12)
    grad = torch.randn_like(got)
    for one, other in nonempty(zip(*(torch.autograd.grad(of, parts, grad) for of in (got, want)), strict=True)):
        assert torch.allclose(one, other, rtol=0, atol=1e-11)
    assert not attend(*parts, starts, heads, 0.3, dropout=1.0).any()


BITS = """
import hashlib, torch
from fedtext.models.native_attention import attend
torch.manual_seed(0)
found = hashlib.sha256()
for dtype in (torch.float32, torch.float64):
    parts = [torch.randn(61, 24, dtype=dtype, requires_grad=True) for _ in range(3)]
    out = attend(*parts, torch.tensor([0, 5, 22, 61]), 3, 0.3)
    for tensor in (out, *torch.autograd.grad(out.square().sum(), parts)):
        found.update(tensor.detach().numpy().tobytes())
print(found.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions of an x86-64 are left out")
def test_its_bits_do_not_depend_on_the_width_of_vectors(tmp_path: Path) -> None:
    found = set()
    for compiler in nonempty(["cc", "cc -mno-avx512f"]):
        environment = os.environ | {"CC": compiler, "XDG_CACHE_HOME": str(tmp_path / compiler)}
        run = subprocess.run([sys.executable, "-c", BITS], env=environment, capture_output=True, text=True, check=True)
        found.add(run.stdout)
    assert len(found) == 1


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
        assert ("_Product" in str(outputs.grad_fn.next_functions)) == (
            in_c and not keys.keys() & {"residual", "dropout"}
        )
    for got, want in nonempty(zip(*found, strict=True)):
        assert torch.allclose(got, want, rtol=0, atol=1e-12)


def test_what_is_made_of_a_weight_follows_it() -> None:
    frozen, inputs = FrozenLinear(torch.nn.Linear(20, 12)), torch.randn(5, 20)

    def check() -> None:
        with products_in_c(True):
            assert torch.allclose(frozen(inputs), linear(inputs, frozen.weight, frozen.bias), atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16), products_in_c(True):
            assert torch.equal(frozen(inputs), linear(inputs, frozen.weight, frozen.bias))

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
    with torch.inference_mode(), products_in_c(True):
        frozen, inputs = FrozenLinear(torch.nn.Linear(20, 12)), torch.randn(5, 20)
        frozen.weight.mul_(2)
        assert torch.allclose(frozen(inputs), linear(inputs, frozen.weight, frozen.bias), atol=1e-5)


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


def test_eager_attention_is_not_computed_in_c() -> None:
    with pytest.raises(ValueError, match="no part of model transformer with attention eager is computed by native"):
        tiny.experiment(model=SCRATCH | {"attention": "eager"}, training={"engine": "native"})


TOKENS_BT = torch.tensor([[1, 2, 3, 4, 8], [5, 6, 0, 0, 0], [7, 1, 2, 0, 0]])
BATCH = {"tokens_BT": TOKENS_BT, "lengths_B": torch.tensor([5, 2, 3]), "labels_B": torch.tensor([0, 1, 1])}
ADAPTERS = [
    None,
    {"lora": {"rank": 2}},
    {"lora": {"rank": 2, "modules": EVERY}},
    {"lora": {"rank": 2, "blocks": 1}},
    {"lora": None},
]


def outcome(network: torch.nn.Module, loss: Any) -> list[Tensor]:
    torch.manual_seed(8)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    found = loss(network)
    grads = torch.autograd.grad(found, [p for p in network.parameters() if p.requires_grad], allow_unused=True)
    return [found, *(grad for grad in grads if grad is not None)]


def assert_same(outcomes: list[list[Tensor]]) -> None:
    assert len(outcomes[0]) > 2
    for reference, native in nonempty(zip(*outcomes, strict=True)):
        assert torch.allclose(reference, native, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_a_classifier_and_its_gradients_are_the_references(architecture: str, adapter: Any) -> None:
    keys = SCRATCH | {"dropout": 0.0, "architecture": architecture, "adapter": adapter}
    config, outcomes = TransformerClassifier.model_validate(keys), []
    for native in nonempty([False, True]):
        torch.manual_seed(5)
        network = FedAvg().network(Parts(config, 2)).double()
        network.embedding = torch.nn.Embedding(9, 8).double().requires_grad_(adapter is None)

        def loss(made: Any, native: bool = native) -> Tensor:
            batch = Batch(**BATCH, native=native)
            return made.head(made.encoder(made.embedding, batch)).sin().sum()

        outcomes.append(outcome(network, loss))
    assert_same(outcomes)


@pytest.mark.parametrize("adapter", ADAPTERS[:4], ids=str)
def test_a_causal_model_and_its_gradients_are_the_references(adapter: Any) -> None:
    config, outcomes = CausalLanguageModel.model_validate(GPT | {"adapter": adapter}), []
    for native in nonempty([False, True]):
        torch.manual_seed(5)
        embedding = torch.nn.Embedding(9, 8).requires_grad_(adapter is None)
        network = config.build(9, embedding, weights=True).double()
        outcomes.append(outcome(network, lambda made, native=native: made(Batch(**BATCH, native=native)).loss))
    assert_same(outcomes)


def test_a_run_has_the_same_bits_in_any_packing_and_after_an_interruption() -> None:
    training = tiny.TRAINING | {"rounds": 2, "engine": "native"}
    adapted = SCRATCH | {"dropout": 0.2, "adapter": {"lora": {"rank": 2, "blocks": 1}}}
    check_run(tiny.experiment(model=adapted, evaluation=LATE, training=training))
    check_run(
        tiny.language_model(
            "fedavg", model=GPT | {"dropout": 0.1, "positions": 200}, evaluation=LATE, training=training
        )
    )
