"""Checkpoints of models that are built as Llama is: their tokenizers, their adapters, and files that are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

import fedtext
from fedtext.client.local_fleet import LocalFleet
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.models.adapter_files import CONFIG, WEIGHTS
from fedtext.models.adapters import A, B
from fedtext.models.causal import CausalLanguageModel
from fedtext.models.language import OUTPUT
from fedtext.models.parts import Parts, whole
from fedtext.parameters import initial, shared_numbers
from fedtext.state.model_adapter import ADAPTER
from fedtext.testing.runs import check_run
from fedtext.text import byte_pairs
from fedtext.text.tokens import BOS_ID, EOS_ID
from tests import tiny
from tests.fedtext.models.llamas import ALL, END, LATE, TEXTS, theirs
from tests.fedtext.models.sentences import VOCABULARY, ptb, run
from tests.loops import nonempty


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
    folder: Path,
    architecture: str,
    begin: str | None,
    pairs: tokenizers.Tokenizer | None = None,
    end: str = END,
    tied: bool = True,
    file_size: str = "1GB",
) -> tuple[Any, tokenizers.Tokenizer, dict[str, Any]]:
    """A checkpoint in bfloat16 with its tokenizer, saved, and the keys of a run that hardly moves it."""
    pairs = of_bytes(begin) if pairs is None else pairs
    sizes = {"vocab_size": pairs.get_vocab_size() + 5, "max_position_embeddings": 30, "tie_word_embeddings": tied}
    theirs(architecture, **sizes).bfloat16().save_pretrained(folder / "theirs", max_shard_size=file_size)
    named = {"eos_token": end} | ({"bos_token": begin} if begin else {})
    transformers.PreTrainedTokenizerFast(tokenizer_object=pairs, **named).save_pretrained(folder / "theirs")
    model = {
        "name": "causal",
        "checkpoint": str(folder / "theirs"),
        "embedding": {"dim": 16},
        "dropout": 0.0,
        "tied": tied,
    }
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
@pytest.mark.parametrize(
    ("architecture", "begin", "more"),
    [
        ("llama", "<|begin_of_text|>", {}),
        ("qwen2", None, {}),
        ("mistral", "<|begin_of_text|>", {"tied": False}),
        ("llama", None, {"tied": False, "file_size": "10KB"}),
    ],
    ids=["llama", "qwen2", "untied", "untied, in several files"],
)
def test_a_checkpoint_predicts_what_the_package_predicts_with_it(
    tmp_path: Path, architecture: str, begin: str | None, more: dict[str, Any], adapted: bool
) -> None:
    """A text begins as those of the checkpoint do, or after the end of another one if they have no beginning."""
    source, pairs, changes = whole_checkpoint(tmp_path, architecture, begin, **more)
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


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_checkpoint_is_trained_saved_and_loaded_without_it(tmp_path: Path, tied: bool) -> None:
    changes = whole_checkpoint(tmp_path, "qwen3", None, tied=tied)[2]
    changes["training"]["optimizer"] = {"name": "adam", "lr": 0.01}
    changes["model"]["adapter"] = {"lora": {"modules": ["query", "down"], "blocks": 2}}
    result = run(tmp_path, **changes)
    expected = result.model.predict(["the cat"])
    result.save(tmp_path / "model")
    weights = load_file(tmp_path / "model" / "tokenizer" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}, "as in the checkpoint"
    (tmp_path / "theirs").rename(tmp_path / "elsewhere")
    assert fedtext.Model.load(tmp_path / "model").predict(["the cat"]) == expected
    if not tied:
        with pytest.raises(ValueError, match=r"fedper separates the output layer .* a checkpoint's does not change"):
            tiny.language_model("fedper", **changes)


@pytest.mark.parametrize(
    ("adapter", "moves"), [(None, True), ({"lora": None}, True), ({"lora": {"rank": 2}}, False)], ids=str
)
def test_an_output_layer_of_a_checkpoint_changes_unless_factors_are_trained(
    tmp_path: Path, adapter: dict[str, Any] | None, moves: bool
) -> None:
    changes = whole_checkpoint(tmp_path, "llama", None, tied=False)[2]
    changes["training"]["optimizer"] = {"name": "adam", "lr": 0.01}
    changes["model"]["adapter"] = adapter
    experiment = tiny.language_model("fedavg", evaluation=LATE, **changes)
    texts = prepare(experiment.corpus, experiment.model.embedding, 0, ptb(tmp_path))
    shared, unshared = initial(experiment, texts)
    result, head = run(tmp_path, **changes), {**shared, **unshared}[OUTPUT]
    assert np.array_equal(result.state[OUTPUT], head) is not moves
    assert (OUTPUT in shared) is moves
    assert (shared_numbers(experiment, texts.classes, 1, len(texts.vocabulary)) >= head.size) is moves
    check_run(experiment, texts)
    worker = LocalFleet(experiment, texts, unshared).worker
    assert (OUTPUT in worker.workspaces.layout.shapes) is moves, "no gradient, no momentum, no copy for each client"
    held = worker.stack(np.zeros(worker.shared.size, np.float32), [0]).tensors(0)[OUTPUT]
    assert (held.data_ptr() == worker.network.head.weight.data_ptr()) is not moves
    assert moves or np.array_equal(held, head)


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
