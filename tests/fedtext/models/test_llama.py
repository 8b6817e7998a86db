"""Causal language models that are built as Llama is: the package's own in float64, adapters, and runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.models.adapters import A, B
from fedtext.models.batch import Batch
from fedtext.models.causal import CausalLanguageModel, CausalNetwork
from fedtext.models.parts import Parts, whole
from fedtext.testing.runs import check_run
from tests import tiny
from tests.fedtext.models.llamas import ALL, ARCHITECTURES, LATE, LONG, POSITIONS, config, ours, theirs
from tests.fedtext.models.sentences import VOCABULARY, batch, check_step, their_loss
from tests.loops import nonempty


def names(source: Any) -> dict[str, Tensor]:
    """The package's parameters by our names."""
    found = {name.replace("model.", "decoder.", 1): tensor for name, tensor in source.named_parameters()}
    return found | {TABLE: found.pop("decoder.embed_tokens.weight")}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loss_gradients_and_a_step_are_those_of_the_package(tmp_path: Path, architecture: str, attention: str) -> None:
    source = theirs(architecture, attention)
    network = ours(source, tmp_path, attention=attention)
    check_step(source, network, names(source))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_step_by_step_is_all_at_once(tmp_path: Path, architecture: str) -> None:
    network = ours(theirs(architecture), tmp_path).eval()
    tokens_BT = torch.randint(VOCABULARY, (3, 6), generator=torch.manual_seed(0))
    with torch.no_grad():
        expected_BTV, state = network.following(tokens_BT), None
        for place in range(6):
            logits_BV, state = network.step(tokens_BT[:, place], state)
            assert torch.allclose(logits_BV, expected_BTV[:, place], rtol=1e-9, atol=1e-12)


def with_factors(network: CausalNetwork) -> CausalNetwork:
    """Give the factors of an adapter values that are not 0."""
    draws = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in nonempty(network.named_parameters()):
            if name.endswith((A, B)):
                parameter.copy_(torch.randn(parameter.shape, generator=draws, dtype=torch.float64) / 4)
    return network


def loss_and_gradients(network: CausalNetwork, given: Batch) -> dict[str, Tensor]:
    network.zero_grad()
    loss = network(given).loss
    loss.backward()
    gradients = {name: each.grad.clone() for name, each in network.named_parameters() if name != TABLE}
    return gradients | {"loss": loss.detach()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_adapter_is_the_product_of_its_factors_beside_the_weights(tmp_path: Path, architecture: str) -> None:
    lora = {"rank": 2, "alpha": 3, "modules": ALL}
    network = with_factors(ours(theirs(architecture), tmp_path, adapter={"lora": lora}))
    found = loss_and_gradients(network, batch())
    merged = theirs(architecture).double()
    with torch.no_grad():
        for path, layer in nonempty(network.decoder.layers.named_modules()):
            if hasattr(layer, "lora_A"):
                merged.model.layers.get_submodule(path).weight += 1.5 * layer.lora_B @ layer.lora_A
    assert found["loss"].item() == pytest.approx(their_loss(merged, batch()).item(), rel=1e-9)
    assert len(found) == 1 + 3 * len(ALL) * 2


@pytest.mark.parametrize("blocks", [None, 1])
def test_engine_native_and_stored_outputs_give_the_same_to_rounding(tmp_path: Path, blocks: int | None) -> None:
    lora = {"rank": 2, "modules": ALL, "blocks": blocks}
    network = with_factors(ours(theirs(), tmp_path, adapter={"lora": lora}))
    network.embedding.requires_grad_(False)
    expected = loss_and_gradients(network, batch())
    for _ in range(2):  # the second time outputs of the first blocks are looked up
        found = loss_and_gradients(network, replace(batch(), native=True))
        for name, tensor in nonempty(found.items()):
            assert torch.allclose(tensor, expected[name], rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("adapter", [None, {"lora": {"rank": 2, "modules": ALL}}], ids=["whole", "adapter"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_attention_is_in_float32_where_products_are_in_bfloat16(
    tmp_path: Path, architecture: str, adapter: dict[str, Any] | None
) -> None:
    """Rotary positions make queries and keys float32, and values stay in bfloat16."""
    found = {}
    for precision in ("float32", "bfloat16"):
        network = ours(theirs(architecture), tmp_path, adapter=adapter, precision=precision).float()
        network.embedding.requires_grad_(False)
        for native in (False, True):
            found[precision, native] = loss_and_gradients(network, replace(batch(), native=native))
    exact = found["float32", False]
    size = sum(float(tensor.square().sum()) for tensor in exact.values()) ** 0.5
    for native in (False, True):
        rounded = found["bfloat16", native]
        assert rounded["loss"].item() == pytest.approx(exact["loss"].item(), rel=0.03)
        far = sum(float((tensor - exact[name]).square().sum()) for name, tensor in nonempty(rounded.items())) ** 0.5
        assert far < 0.15 * size, native


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"uplink": [{"clip": {"norm": 0.3}}], "server": {"weights": "uniform", "secure_aggregation": {"range": 0.3}}},
        {"training": tiny.TRAINING | {"dp_sgd": {"clip_norm": 1.0, "multiplier": 0.5}}},
        {
            "model": LONG | {"adapter": {"lora": {"rank": 2, "modules": ["query", "gate"], "blocks": 2}}},
            "server": {"aggregation": {"lora": {"factors": "svd"}}},
        },
    ],
    ids=["whole", "masks", "dp_sgd", "adapters"],
)
def test_a_run_has_the_same_bits_in_any_packing_and_after_an_interruption(changes: dict[str, Any]) -> None:
    check_run(tiny.language_model("fedavg", **{"model": LONG, "evaluation": LATE} | changes))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    for wrong, said in (
        ({"heads": 4, "kv_heads": 3}, r"heads \(4\) must be a multiple of kv_heads \(3\)"),
        ({"architecture": "gpt2"}, "kv_heads: GPT-2 has as many as heads"),
        ({"heads": 16}, "embedding.dim over heads is 1, and a llama turns pairs of numbers"),
    ):
        with pytest.raises(ValueError, match=said):
            config(**wrong)
    gated = {"lora": {"modules": ["query", "gate"]}}
    with pytest.raises(UserError, match=r"a block of gpt2 has no gate: name some of query, key, value, output, up, do"):
        config(architecture="gpt2", kv_heads=None, adapter=gated).check(9)
    config(adapter=gated).check(POSITIONS + 1)
    theirs("mistral", sliding_window=6).save_pretrained(tmp_path)
    windowed = CausalLanguageModel.model_validate({"checkpoint": str(tmp_path), "embedding": {"dim": 16}})
    windowed.check(7)
    with pytest.raises(UserError, match=r"corpus.max_length: .* 6 positions, .* at most 7"):
        windowed.check(8)
    theirs("qwen2", sliding_window=6, use_sliding_window=True, max_window_layers=3).save_pretrained(tmp_path)
    windowed.check(POSITIONS + 1)
    theirs(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has rotary positions of the type dynamic, which depend on the longest text"):
        windowed.check(7)


def test_a_gated_layer_has_about_as_many_weights_as_one_without() -> None:
    made = whole(Parts(config(intermediate=None), VOCABULARY))
    gate = made.decoder.layers[0].mlp.gate_proj.weight
    assert gate.shape == (48, 16)
    assert 3 * gate.numel() == pytest.approx(2 * 4 * 16 * 16, rel=0.2)
