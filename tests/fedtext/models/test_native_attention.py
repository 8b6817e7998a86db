"""Engine native in transformers: attention within each text, and whole networks, against torch's."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fedtext.methods import FedAvg
from fedtext.models import causal, fixed, native_block, transformer, unpadded
from fedtext.models.batch import Batch
from fedtext.models.causal import CausalLanguageModel
from fedtext.models.native_attention import Dropout, attend
from fedtext.models.parts import Parts
from fedtext.models.transformer import TransformerClassifier
from fedtext.runtime.compiled import compile_problem
from fedtext.testing.runs import check_run
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.compilers import printed_by_width, x86
from tests.loops import nonempty
from tests.native_functions import add_dropped

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
    sizes = [heads * length**2 for length in LENGTHS]
    factors_W = add_dropped(torch.ones(sum(sizes), dtype=torch.float64), Dropout.drawn(0.25))
    assert (factors_W > 0).double().mean() == pytest.approx(0.75, abs=0.01)
    factors = [
        part.view(heads, length, length).transpose(1, 2)  # of each key, for each query
        for part, length in zip(factors_W.split(sizes), LENGTHS, strict=True)
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
@x86
def test_its_bits_do_not_depend_on_the_width_of_vectors(tmp_path: Path) -> None:
    assert len(printed_by_width(BITS, tmp_path)) == 1


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


def classifier(adapter: Any, architecture: str = "bert") -> list[list[Tensor]]:
    """Of both engines."""
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
    return outcomes


def causal_model(adapter: Any) -> list[list[Tensor]]:
    """Of both engines."""
    config, outcomes = CausalLanguageModel.model_validate(GPT | {"adapter": adapter}), []
    for native in nonempty([False, True]):
        torch.manual_seed(5)
        embedding = torch.nn.Embedding(9, 8).requires_grad_(adapter is None)
        network = config.build(9, embedding, weights=True).double()
        outcomes.append(outcome(network, lambda made, native=native: made(Batch(**BATCH, native=native)).loss))
    return outcomes


@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_a_classifier_and_its_gradients_are_the_references(architecture: str, adapter: Any) -> None:
    assert_same(classifier(adapter, architecture))


@pytest.mark.parametrize("adapter", ADAPTERS[:4], ids=str)
def test_a_causal_model_and_its_gradients_are_the_references(adapter: Any) -> None:
    assert_same(causal_model(adapter))


@pytest.mark.parametrize("adapter", [ADAPTERS[0], ADAPTERS[2], ADAPTERS[3]], ids=str)
@pytest.mark.parametrize("made", [classifier, causal_model])
def test_rows_that_are_added_change_nothing(made: Any, adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are for blocks in bfloat16, whose rounding would hide their effect, that are not computed in C."""
    monkeypatch.setattr(unpadded, "_in_bfloat16", lambda: True)
    monkeypatch.setattr(native_block, "in_c", lambda inputs: False)
    for module in nonempty([causal, fixed, transformer]):
        monkeypatch.setattr(module, "always_in_c", lambda blocks: False)
    counts, run = [], unpadded.attend

    def attend(query_SD: Tensor, *more: Any) -> Tensor:
        counts.append(len(query_SD))
        return run(query_SD, *more)

    monkeypatch.setattr(unpadded, "attend", attend)
    assert_same(made(adapter))
    assert set(counts) == {unpadded.ROWS}


def test_rows_are_added_in_bfloat16_alone_where_products_are_torchs() -> None:
    places = unpadded.Places.of(np.array([5, 2]), 5, torch.device("cpu"), in_c=True)
    rows: list[int] = []

    def layers(inputs_embeds: Tensor, position_ids: Tensor, places: Any) -> Any:
        assert inputs_embeds.shape[1] == position_ids.shape[1] == places.starts[-1]
        rows.append(inputs_embeds.shape[1])
        return SimpleNamespace(last_hidden_state=inputs_embeds + 1)

    for dtype in (torch.bfloat16, None):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            for whole in nonempty([False, True]):
                found_BTD = unpadded.run_unpadded(layers, torch.ones(7, 3), places, whole)
                assert found_BTD[..., 0].tolist() == [[2.0] * 5, [2.0, 2.0, 0.0, 0.0, 0.0]]
    assert rows == [16, 7, 7, 7]


def test_a_run_has_the_same_bits_in_any_packing_and_after_an_interruption() -> None:
    training = tiny.TRAINING | {"rounds": 2, "engine": "native"}
    adapted = SCRATCH | {"dropout": 0.2, "adapter": {"lora": {"rank": 2, "blocks": 1}}}
    check_run(tiny.experiment(model=adapted, evaluation=LATE, training=training))
    check_run(
        tiny.language_model(
            "fedavg", model=GPT | {"dropout": 0.1, "positions": 200}, evaluation=LATE, training=training
        )
    )
