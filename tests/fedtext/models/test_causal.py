"""Causal language models: the package's own GPT-2 in float64, adapters, and everything around a run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers

import fedtext
from fedtext.audits import membership
from fedtext.audits.confidences import Confidences, confidences
from fedtext.audits.exposure import searched
from fedtext.audits.known import Known
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.models.adapters import A, B
from fedtext.models.causal import CausalLanguageModel, CausalNetwork
from fedtext.models.parts import Parts, whole
from fedtext.testing.runs import check_run
from fedtext.text import byte_pairs
from fedtext.text.tokens import EOS_ID
from tests import tiny
from tests.fedtext.models.sentences import LENGTHS, SMALL, VOCABULARY, batch, check_step, run
from tests.loops import nonempty

POSITIONS = 12
LATE = {"personalize": None, "every": 2}


def config(**changes: Any) -> CausalLanguageModel:
    return CausalLanguageModel.model_validate(SMALL | {"positions": POSITIONS} | changes)


def theirs(tied: bool = True) -> transformers.GPT2LMHeadModel:
    """The package's model, with weights so large that attention matters."""
    torch.manual_seed(3)
    sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS, "vocab_size": VOCABULARY}
    made = transformers.GPT2Config(
        **sizes, initializer_range=0.5, tie_word_embeddings=tied, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    return transformers.GPT2LMHeadModel(made).double()


def ours(source: transformers.GPT2LMHeadModel, **changes: Any) -> CausalNetwork:
    """Our network with the same weights."""
    made = whole(Parts(config(tied=source.config.tie_word_embeddings, **changes), VOCABULARY)).double()
    assert isinstance(made, CausalNetwork)
    made.embedding = torch.nn.Embedding(VOCABULARY, 8).double()
    state = {name.replace("transformer.", "decoder."): tensor for name, tensor in source.state_dict().items()}
    state[TABLE], head = state.pop("decoder.wte.weight"), state.pop("lm_head.weight")
    made.load_state_dict(state | ({} if source.config.tie_word_embeddings else {"head.weight": head}))
    return made


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_loss_gradients_and_a_step_are_those_of_the_package(tied: bool, attention: str) -> None:
    source = theirs(tied)
    network = ours(source, attention=attention)
    expected = {name.replace("transformer.", "decoder."): tensor for name, tensor in source.named_parameters()}
    called = {"decoder.wte.weight": TABLE, "lm_head.weight": "head.weight"}
    check_step(source, network, {called.get(name, name): tensor for name, tensor in expected.items()})


def test_evaluation_has_the_nats_of_each_token_and_the_ranks() -> None:
    source, given = theirs(), batch()
    network = ours(source).eval()
    with torch.no_grad():
        score = network(given)
        expected = [
            source(input_ids=given.tokens_BT[text : text + 1, : length - 1].long()).logits[0].log_softmax(1)
            for text, length in enumerate(LENGTHS)
        ]
    tokens = [given.tokens_BT[text, 1:length].long() for text, length in enumerate(LENGTHS)]
    pairs = list(zip(expected, tokens, strict=True))
    nats = torch.cat([-log_TV.gather(1, targets[:, None])[:, 0] for log_TV, targets in pairs])
    ranks = torch.cat([(log_TV >= log_TV.gather(1, targets[:, None])).sum(1) - 1 for log_TV, targets in pairs])
    assert torch.allclose(score.nats_S.sort().values, nats.sort().values, rtol=1e-9, atol=1e-12)
    assert torch.equal(score.ranks_S.sort().values, ranks.sort().values)


def test_step_by_step_is_all_at_once() -> None:
    network = ours(theirs()).eval()
    tokens_BT = torch.randint(VOCABULARY, (3, 6), generator=torch.manual_seed(0))
    with torch.no_grad():
        expected_BTV, state = network.following(tokens_BT), None
        for place in range(6):
            logits_BV, state = network.step(tokens_BT[:, place], state)
            assert torch.allclose(logits_BV, expected_BTV[:, place], rtol=1e-9, atol=1e-12)
        best = int(expected_BTV[0, -1].argmax())
        assert searched(network, tokens_BT[0].tolist(), 1, 2) == [best]


def test_adapters_begin_as_the_model_that_they_are_put_into() -> None:
    lora = {"rank": 2, "modules": ["query", "key", "value", "output", "up", "down"]}
    losses, names = [], []
    for adapter in ({}, {"adapter": {"lora": lora}}):
        torch.manual_seed(5)
        network = whole(Parts(config(**adapter), VOCABULARY)).double()
        network.embedding = torch.nn.Embedding.from_pretrained(
            torch.randn(VOCABULARY, 8, generator=torch.manual_seed(1), dtype=torch.float64)
        )
        losses.append(network(batch()).loss.item())
        names.append({name for name, _ in network.named_parameters()} - {TABLE})
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert len(names[1]) == 2 * 6 * 2
    assert all(nonempty(name.endswith((A, B)) for name in names[1]))
    assert "decoder.h.0.attn.c_attn.query.lora_A" in names[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "fedatt", "server": {"optimizer": {"name": "adam", "lr": 0.01}}},
        {"uplink": [{"clip": {"norm": 0.3}}], "server": {"weights": "uniform", "secure_aggregation": {"range": 0.3}}},
        {"training": tiny.TRAINING | {"dp_sgd": {"clip_norm": 1.0, "multiplier": 0.5}}},
        {"model": SMALL | {"adapter": {"lora": {"rank": 2}}}, "server": {"aggregation": {"lora": {"factors": "svd"}}}},
        {"model": SMALL | {"adapter": {"lora": {"rank": 2, "share": "a"}}}},
    ],
    ids=["attention", "masks", "dp_sgd", "adapters", "kept factors"],
)
def test_a_run_has_the_same_bits_in_any_packing_and_after_an_interruption(changes: dict[str, Any]) -> None:
    changes = {"model": SMALL, "evaluation": LATE} | changes
    check_run(tiny.language_model(changes.pop("method", "fedavg"), **changes))


@pytest.mark.parametrize("adapted", [False, True])
def test_a_checkpoint_is_trained_saved_and_loaded_without_it(tmp_path: Path, adapted: bool) -> None:
    theirs().float().save_pretrained(tmp_path / "gpt2")
    model = {"name": "causal", "checkpoint": str(tmp_path / "gpt2"), "dropout": 0.0}
    model |= {"embedding": {"dim": 8, "init": {"random": {"std": 0.02}}}} | ({"adapter": {}} if adapted else {})
    corpus = {"name": "ptb", "clients": 1, "validation": 0.0, "max_length": POSITIONS + 1}
    result = run(tmp_path, model=model, corpus=corpus)
    found = result.model.predict(["the cat saw the mat"])
    assert found[0].perplexity == pytest.approx(result.metrics["perplexity"], rel=1e-5)
    if not adapted:  # the layers begin as the checkpoint's
        start = fedtext.run(result.experiment, "training.optimizer.lr=1e-12", "training.rounds=1", data=tmp_path)
        given = theirs().state_dict()["transformer.h.1.mlp.c_fc.weight"].numpy()
        assert np.allclose(start.state["decoder.h.1.mlp.c_fc.weight"], given, atol=1e-6)
    result.save(tmp_path / "model")
    (tmp_path / "gpt2").rename(tmp_path / "elsewhere")
    assert fedtext.Model.load(tmp_path / "model").predict(["the cat"]) == result.model.predict(["the cat"])
    with pytest.raises(UserError, match=r"^'the cat the cat .*': a text has .* 12 positions"):
        result.model.predict(["the cat " * 6])


def whole_checkpoint(folder: Path) -> tuple[transformers.GPT2LMHeadModel, tokenizers.Tokenizer, dict[str, Any]]:
    """A checkpoint of GPT-2 with its tokenizer, saved, and the keys of a run that hardly moves it."""
    pairs = tokenizers.Tokenizer.from_str(byte_pairs.trained(["the cat sat on the mat", "a cat saw the dog"], 270))
    pairs.add_special_tokens([end := "<|endoftext|>"])
    torch.manual_seed(3)
    sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 30, "vocab_size": pairs.get_vocab_size()}
    source = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, initializer_range=0.5)).eval()
    source.save_pretrained(folder / "gpt2")
    named = dict.fromkeys(("bos_token", "eos_token", "unk_token"), end)
    transformers.PreTrainedTokenizerFast(tokenizer_object=pairs, **named).save_pretrained(folder / "gpt2")
    model = {"name": "causal", "checkpoint": str(folder / "gpt2"), "embedding": {"dim": 8}, "dropout": 0.0}
    corpus = {"name": "ptb", "clients": 1, "validation": 0.0, "max_length": 30}
    corpus["text"] = {"bpe": {"checkpoint": str(folder / "gpt2")}}
    training = {"rounds": 1, "batch_size": 4, "optimizer": {"name": "sgd", "lr": 1e-12}}
    return source, pairs, {"model": model, "corpus": corpus, "training": training}


@pytest.mark.parametrize("adapted", [False, True])
def test_a_checkpoint_predicts_what_the_package_predicts_with_it(tmp_path: Path, adapted: bool) -> None:
    """<unk>, <s>, </s> and the checkpoint's end of a text have one row, and the end its whole probability."""
    source, pairs, changes = whole_checkpoint(tmp_path)
    end = "<|endoftext|>"
    changes["model"] |= {"adapter": {}} if adapted else {}
    trained = run(tmp_path, **changes).model
    bound = trained._bind(None)
    rows = trained._writing(bound).rows("the cat saw")
    ids = [pairs.token_to_id(end), *pairs.encode("the cat saw").ids]
    with torch.no_grad():
        found_TV = bound.model.network.following(torch.tensor([rows]) - 1)[0].log_softmax(1)
        expected_TV = source(torch.tensor([ids])).logits[0].log_softmax(1)
    there = {bound.vocabulary.index(entry) - 1: number for entry, number in pairs.get_vocab().items() if entry != end}
    there[EOS_ID - 1] = pairs.token_to_id(end)
    assert torch.allclose(found_TV[:, [*there]], expected_TV[:, [*there.values()]], atol=1e-5)
    assert found_TV.exp()[:, [*there]].sum(1).allclose(torch.ones(len(rows)), atol=1e-5), "nothing else has a share"

    trained.export(tmp_path / "exported")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    barred = {"<unk>", "<s>", end}
    assert {bound.vocabulary[row + 1] for row in again.generation_config.suppress_tokens} == barred


def test_audits_attack_the_model_that_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Known] = []

    def watched(known: Known, *given: Any) -> Confidences:
        seen.append(known)
        return confidences(known, *given)

    monkeypatch.setattr(membership, "confidences", watched)
    trained = run(tmp_path, **whole_checkpoint(tmp_path)[2], audits=["membership"]).model
    expected = trained._bind(None).model.network.barred
    assert expected is not None
    assert expected.isinf().any()
    assert all(torch.equal(known.network.barred, expected) for known in nonempty(seen))


def test_next_byte_pairs_say_whether_a_word_begins(tmp_path: Path) -> None:
    corpus = {"name": "ptb", "clients": 1, "validation": 0.0, "text": {"bpe": {"size": 270}}}
    (found,) = run(tmp_path, corpus=corpus, training={"rounds": 1}).model.predict(["the"])
    words = [word for word, _ in found.words]
    assert len(set(words)) == len(words)
    assert any(word.startswith(" ") for word in words), words


def test_secrets_are_looked_for_in_a_causal_model(tmp_path: Path) -> None:
    corpus = {"name": "ptb", "clients": 1, "validation": 0.0, "secrets": {"digits": 2, "insertions": [1, 8]}}
    result = run(tmp_path, corpus=corpus, audits=["exposure", {"name": "membership"}])
    assert result.metrics["exposure_8"] <= 2 * np.log2(10)
    assert 0 <= result.metrics["member_auc"] <= 1


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    for wrong, said in (
        ({"heads": 3}, "must be a multiple of heads"),
        ({"checkpoint": "gpt2"}, "layers: a checkpoint has its own sizes"),
    ):
        with pytest.raises(ValueError, match=said):
            config(**wrong)
    with pytest.raises(UserError, match=r"corpus.max_length: .* 12 positions, .* at most 13"):
        config().check(14)
    config().check(13)
    saved = transformers.BertModel(transformers.BertConfig(hidden_size=8, num_attention_heads=2, vocab_size=9))
    saved.save_pretrained(tmp_path)
    bert = CausalLanguageModel.model_validate({"checkpoint": str(tmp_path), "embedding": {"dim": 8}})
    with pytest.raises(UserError, match="is a bert, and model causal supports gpt2, llama, mistral, qwen2 and qwen3"):
        bert.check(9)
    theirs(tied=False).save_pretrained(tmp_path / "untied")
    untied = CausalLanguageModel.model_validate({"checkpoint": str(tmp_path / "untied"), "embedding": {"dim": 8}})
    with pytest.raises(UserError, match=r"model.tied is true, .*untied has tie_word_embeddings: false: set model.tied"):
        untied.check(9)
    untied.model_copy(update={"tied": False}).check(9)


def test_an_adapter_of_another_layout_is_refused(tmp_path: Path) -> None:
    theirs().save_pretrained(tmp_path / "gpt2")
    given = {"checkpoint": str(tmp_path / "gpt2"), "embedding": {"dim": 8}}
    wrong = CausalLanguageModel.model_validate(given | {"adapter": {"lora": {"checkpoint": str(tmp_path)}}})
    with pytest.raises(UserError, match="one layer for query, key and value of GPT-2, which are three here"):
        wrong.check(9)
