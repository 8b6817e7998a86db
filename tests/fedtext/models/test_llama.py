"""Causal language models that are built as Llama is: the package's own in float64, adapters, and runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import fedtext
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.models.adapter_files import CONFIG, WEIGHTS
from fedtext.models.adapters import A, B
from fedtext.models.batch import Batch
from fedtext.models.causal import CausalLanguageModel, CausalNetwork
from fedtext.models.parts import Parts, whole
from fedtext.state.model_adapter import ADAPTER
from fedtext.testing.runs import check_run
from fedtext.text import byte_pairs
from fedtext.text.tokens import BOS_ID, EOS_ID
from tests import tiny
from tests.fedtext.models.sentences import VOCABULARY, batch, run, their_loss
from tests.loops import nonempty

POSITIONS, END = 14, "<|endoftext|>"
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
SIZES |= {"intermediate_size": 24, "max_position_embeddings": POSITIONS}
SMALL = {"name": "causal", "architecture": "llama", "embedding": {"dim": 16}, "layers": 3, "heads": 4, "kv_heads": 2}
SMALL |= {"intermediate": 24, "positions": POSITIONS, "dropout": 0.0}
LONG = SMALL | {"positions": 100}
ALL = ["query", "key", "value", "output", "gate", "up", "down"]
LATE = {"personalize": None, "every": 2}
TEXTS = ["the cat sat on the mat", "a cat saw the dog"]
ARCHITECTURES = ["llama", "mistral", "qwen2", "qwen3"]


def config(**changes: Any) -> CausalLanguageModel:
    return CausalLanguageModel.model_validate(SMALL | changes)


def theirs(architecture: str = "llama", attention: str = "sdpa", **changes: Any) -> Any:
    """The package's model, with weights so large that attention matters."""
    torch.manual_seed(3)
    sizes = SIZES | {"vocab_size": VOCABULARY, "initializer_range": 0.5, "tie_word_embeddings": True} | changes
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    made = transformers.AutoConfig.for_model(architecture, **sizes, **ends)
    return transformers.AutoModelForCausalLM.from_config(made, attn_implementation=attention)


def ours(source: Any, folder: Path, **changes: Any) -> CausalNetwork:
    """Our network with the same weights, from a checkpoint."""
    source.float().save_pretrained(folder / "theirs")
    given = {"name": "causal", "checkpoint": str(folder / "theirs"), "embedding": {"dim": 16}, "dropout": 0.0}
    made = whole(Parts(CausalLanguageModel.model_validate(given | changes), VOCABULARY)).double()
    assert isinstance(made, CausalNetwork)
    made.embedding = torch.nn.Embedding.from_pretrained(source.get_input_embeddings().weight.detach().double(), False)
    source.double()
    return made


def names(source: Any) -> dict[str, Tensor]:
    """The package's parameters by our names."""
    found = {name.replace("model.", "decoder.", 1): tensor for name, tensor in source.named_parameters()}
    return found | {TABLE: found.pop("decoder.embed_tokens.weight")}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loss_gradients_and_a_step_are_those_of_the_package(tmp_path: Path, architecture: str, attention: str) -> None:
    source = theirs(architecture, attention)
    network = ours(source, tmp_path, attention=attention)
    steps = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (source, network)]
    losses = their_loss(source, batch()), network(batch(padding=7)).loss
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-9)
    for loss in losses:
        loss.backward()
    expected = names(source)
    assert set(expected) == set(dict(network.named_parameters()))
    for name, parameter in nonempty(network.named_parameters()):
        assert torch.allclose(parameter.grad, expected[name].grad, rtol=1e-9, atol=1e-12), name
    for optimizer in steps:
        optimizer.step()
    for name, parameter in nonempty(network.named_parameters()):
        assert torch.allclose(parameter, expected[name], rtol=1e-9, atol=1e-12), name


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


def of_bytes(begin: str | None) -> tokenizers.Tokenizer:
    """Byte pairs as those of Llama 3 and Qwen."""
    pairs = tokenizers.Tokenizer.from_str(byte_pairs.trained(TEXTS, 270))
    pairs.add_special_tokens([END, *([begin] if begin else [])])
    return pairs


def of_characters() -> tokenizers.Tokenizer:
    """Pairs of characters, and bytes of those that are in none, as those of Llama 2 and Mistral."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    normal, decoding = tokenizers.normalizers, tokenizers.decoders
    made.normalizer = normal.Sequence([normal.Prepend("▁"), normal.Replace(" ", "▁")])
    parts = [decoding.Replace("▁", " "), decoding.ByteFallback(), decoding.Fuse(), decoding.Strip(" ", 1, 0)]
    made.decoder = decoding.Sequence(parts)
    alone = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<unk>", "<s>", "</s>", *alone], show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    content = json.loads(made.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in alone]
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def whole_checkpoint(
    folder: Path, architecture: str, begin: str | None, pairs: tokenizers.Tokenizer | None = None, end: str = END
) -> tuple[Any, tokenizers.Tokenizer, dict[str, Any]]:
    """A checkpoint in bfloat16 with its tokenizer, saved, and the keys of a run that hardly moves it."""
    pairs = of_bytes(begin) if pairs is None else pairs
    sizes = {"vocab_size": pairs.get_vocab_size() + 5, "max_position_embeddings": 30}
    theirs(architecture, **sizes).bfloat16().save_pretrained(folder / "theirs")
    named = {"eos_token": end} | ({"bos_token": begin} if begin else {})
    transformers.PreTrainedTokenizerFast(tokenizer_object=pairs, **named).save_pretrained(folder / "theirs")
    model = {"name": "causal", "checkpoint": str(folder / "theirs"), "embedding": {"dim": 16}, "dropout": 0.0}
    corpus = {"name": "ptb", "clients": 1, "validation": 0.0, "max_length": 30}
    corpus["text"] = {"bpe": {"checkpoint": str(folder / "theirs")}}
    training = {"rounds": 1, "batch_size": 4, "optimizer": {"name": "sgd", "lr": 1e-12}}
    source = transformers.AutoModelForCausalLM.from_pretrained(folder / "theirs", dtype=torch.float32).eval()
    return source, pairs, {"model": model, "corpus": corpus, "training": training}


@pytest.mark.parametrize(("end", "added"), [("</s>", []), ("<|im_end|>", ["<|im_start|>", "<|im_end|>"])])
def test_pairs_of_characters_are_predicted_as_the_package_does(tmp_path: Path, end: str, added: list[str]) -> None:
    """<s> and </s> are entries of the tokenizer, and the end of a text may be another one; none of it has <unk>."""
    pairs = of_characters()
    pairs.add_special_tokens(added)
    source, pairs, changes = whole_checkpoint(tmp_path, "mistral", "<s>", pairs, end)
    trained = run(tmp_path, **changes).model
    bound = trained._bind(None)
    rows, first = trained._writing(bound).rows("the żebra"), len(byte_pairs.FRAMED) - 1
    encoded = pairs.encode("the żebra", add_special_tokens=False).ids
    assert [row - 1 - first for row in rows[1:]] == encoded
    there = {
        first + number: number
        for entry, number in pairs.get_vocab().items()
        if entry not in ("<unk>", "<s>", "</s>", *added)
    }
    there[EOS_ID - 1] = pairs.token_to_id(end)
    with torch.no_grad():
        found_TV = bound.model.network.following(torch.tensor([rows]) - 1)[0].log_softmax(1)
        logits_TV = source(torch.tensor([[pairs.token_to_id("<s>"), *encoded]])).logits[0]
    expected_TV = logits_TV[:, [*there.values()]].log_softmax(1)
    assert torch.allclose(found_TV[:, [*there]], expected_TV, atol=1e-4)
    assert found_TV.exp()[:, [*there]].sum(1).allclose(torch.ones(len(rows)), atol=1e-5), "nothing else has a share"


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize(("architecture", "begin"), [("llama", "<|begin_of_text|>"), ("qwen2", None)])
def test_a_checkpoint_predicts_what_the_package_predicts_with_it(
    tmp_path: Path, architecture: str, begin: str | None, adapted: bool
) -> None:
    """A text begins as those of the checkpoint do, or after the end of another one if they have no beginning."""
    source, pairs, changes = whole_checkpoint(tmp_path, architecture, begin)
    changes["model"] |= {"adapter": {"lora": {"modules": ALL}}} if adapted else {}
    trained = run(tmp_path, **changes).model
    bound = trained._bind(None)
    rows = trained._writing(bound).rows("the cat saw")
    assert rows[0] == BOS_ID
    ids = [pairs.token_to_id(begin or END), *pairs.encode("the cat saw").ids]
    with torch.no_grad():
        found_TV = bound.model.network.following(torch.tensor([rows]) - 1)[0].log_softmax(1)
        logits_TV = source(torch.tensor([ids])).logits[0]
    apart = {END, begin}
    there = {bound.vocabulary.index(entry) - 1: each for entry, each in pairs.get_vocab().items() if entry not in apart}
    there[EOS_ID - 1] = pairs.token_to_id(END)
    expected_TV = logits_TV[:, [*there.values()]].log_softmax(1)  # rows beyond the tokenizer are no tokens
    assert torch.allclose(found_TV[:, [*there]], expected_TV, atol=1e-4)

    trained.export(tmp_path / "exported")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    assert type(again) is type(source)
    assert next(again.parameters()).dtype == torch.float32
    with torch.no_grad():
        exported_TV = again(torch.tensor([rows]) - 1).logits[0]
    assert torch.allclose(exported_TV[:, [*there]].log_softmax(1), expected_TV, atol=1e-4)


def test_a_checkpoint_is_trained_saved_and_loaded_without_it(tmp_path: Path) -> None:
    changes = whole_checkpoint(tmp_path, "qwen3", None)[2]
    changes["training"]["optimizer"] = {"name": "adam", "lr": 0.01}
    changes["model"]["adapter"] = {"lora": {"modules": ["query", "down"], "blocks": 2}}
    result = run(tmp_path, **changes)
    expected = result.model.predict(["the cat"])
    result.save(tmp_path / "model")
    (tmp_path / "theirs").rename(tmp_path / "elsewhere")
    assert fedtext.Model.load(tmp_path / "model").predict(["the cat"]) == expected


def test_factors_are_those_of_the_package_peft(tmp_path: Path) -> None:
    """They are written for the named layers of the package's model, and a run begins with them."""
    source, _, changes = whole_checkpoint(tmp_path, "llama", None)
    changes["training"]["optimizer"] = {"name": "adam", "lr": 0.01}
    lora = {"rank": 2, "alpha": 3.0, "modules": ALL}
    changes["model"]["adapter"] = {"lora": lora}
    trained = run(tmp_path, **changes).model
    trained.save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / ADAPTER / CONFIG).read_text())
    factors = load_file(tmp_path / "model" / ADAPTER / WEIGHTS)
    assert about["task_type"] == "CAUSAL_LM"
    assert len(factors) == 2 * 3 * len(ALL)
    tokens = torch.tensor([[5, 9, 7, 30]])
    with torch.no_grad():
        for name in nonempty(about["target_modules"]):
            a, b = (factors[f"base_model.model.{name}.{leaf}.weight"] for leaf in (A, B))
            source.get_submodule(name).weight += 1.5 * b @ a
        rows = source.get_input_embeddings()(tokens)
        ours = trained._bind(None).model.network.run(inputs_embeds=rows).last_hidden_state
        assert torch.allclose(ours, source.model(tokens).last_hidden_state, atol=1e-4)

    changes["model"]["adapter"] = {"lora": lora | {"checkpoint": str(tmp_path / "model" / ADAPTER)}}
    changes["training"]["optimizer"] = {"name": "sgd", "lr": 1e-12}
    again = run(tmp_path, **changes)
    for name, tensor in nonempty(trained.trained.shared.items()):
        assert np.allclose(again.state[name], tensor, atol=1e-6), name

    save_file(factors | {"base_model.model.lm_head.weight": torch.zeros(3, 16)}, tmp_path / "model" / ADAPTER / WEIGHTS)
    with pytest.raises(UserError, match=r"changes lm_head.weight beside its factors, which is not supported"):
        run(tmp_path, **changes)


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


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    theirs().save_pretrained(tmp_path)
    given = CausalLanguageModel.model_validate({"checkpoint": str(tmp_path), "embedding": {"dim": 16}})
    for change, said in (
        (
            {"num_key_value_heads": 4},
            r"has layers.0.self_attn.k_proj.weight of shape \[8, 16\], .* asks for \[16, 16\]",
        ),
        ({"num_hidden_layers": 2}, r"has \S*layers.2.\S+, of which its config.json knows nothing"),
    ):
        about = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(about | change))
        with pytest.raises(UserError, match=said):
            whole(Parts(given, VOCABULARY))
        (tmp_path / "config.json").write_text(json.dumps(about))


def test_a_gated_layer_has_about_as_many_weights_as_one_without() -> None:
    made = whole(Parts(config(intermediate=None), VOCABULARY))
    gate = made.decoder.layers[0].mlp.gate_proj.weight
    assert gate.shape == (48, 16)
    assert 3 * gate.numel() == pytest.approx(2 * 4 * 16 * 16, rel=0.2)
