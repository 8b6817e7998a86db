"""Prompts and responses: the loss is of the response alone, by hand, with words and with byte pairs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import fedtext
from fedtext.audits.confidences import _nats as per_text
from fedtext.corpora.instructions import InstructionCorpus
from fedtext.corpora.pool import pool, union_of_tests
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus, TokenSet
from fedtext.errors import UserError
from fedtext.evaluation.continuations import Writing
from fedtext.evaluation.unigram import unigram
from fedtext.methods.base import Model
from fedtext.models.base import Embedding
from fedtext.models.batch import Batch
from fedtext.models.causal import CausalLanguageModel
from fedtext.models.language import LanguageModel, RecurrentLanguageModel
from fedtext.models.parts import Parts, whole
from fedtext.runtime.compiled import compile_problem
from fedtext.testing import check_corpus
from fedtext.text import byte_pairs
from fedtext.training.batches import Assembler, Texts
from tests.loops import nonempty

PAIRS = [("What is\n2 + 2 ?", "It is 4"), ("Name a café", "Café A"), ("", "Nothing asked"), ("Why ?", "Because . . .")]
CAUSAL = {"name": "causal", "embedding": {"dim": 8}, "layers": 1, "heads": 2, "positions": 60, "dropout": 0.0}
GRU = {"name": "gru_lm", "embedding": {"dim": 8}, "hidden": 8}
WIDE = {"name": "gru_lm", "embedding": {"dim": 32}, "hidden": 32}


def table(folder: Path, copies: int = 4) -> Path:
    rows = [
        {"question": question or "-", "answer": answer, "user": f"u{number % 2}", "split": split}
        for number, (question, answer) in enumerate(PAIRS)
        for split in ("train", "test")
        for _ in range(copies if split == "train" else 1)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "pairs.jsonl"


def config(folder: Path, **options: Any) -> InstructionCorpus:
    keys = {"path": str(table(folder)), "prompt": "question", "response": "answer", "client": "user"}
    return InstructionCorpus.model_validate(keys | options)


def prepared(folder: Path, **options: Any) -> Corpus:
    return prepare(config(folder, **options), Embedding(dim=4), 0, None)


def test_words_of_prompts_are_given(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    assert [client.name for client in corpus.clients] == ["u0", "u1"]
    test = corpus.clients[0].test
    words = [corpus.vocabulary[row] for row in test.tokens_T[: test.offsets[1]]]
    assert words == ["<s>", "What", "is", "2", "+", "2", "?", "It", "is", "4", "</s>"]
    assert test.labels_N.tolist() == [6, 1]
    assert test.bytes_N is not None
    assert test.bytes_N.tolist() == [len(" It is 4\n"), len(" Nothing asked\n")]
    assert corpus.report[0].tokens[2] == 4 + 3


def test_pooled_texts_and_the_union_of_tests_have_prompts_too(tmp_path: Path) -> None:
    clients = prepared(tmp_path).clients
    together = pool(clients).train
    assert together.bytes_N is not None
    assert together.bytes_N.tolist() == [size for client in clients for size in given_bytes(client.train)]
    assert Texts(together, 100).prompted
    assert together.targets().size == sum(client.train.targets().size for client in clients)
    union = union_of_tests([client.test for client in clients]).test
    assert union.bytes_N is not None
    assert union.bytes_N.tolist() == [size for client in clients for size in given_bytes(client.test)]


def given_bytes(tokens: TokenSet) -> list[int]:
    assert tokens.bytes_N is not None
    return [int(size) for size in tokens.bytes_N]


def test_pooled_training_of_one_client_has_the_loss_of_its_local_updates(tmp_path: Path) -> None:
    losses = {}
    for method in nonempty(("fedavg", "pooled")):
        changes = {"name": "one", "method": method, "training": {"rounds": 2, "local_epochs": 1, "batch_size": 4}}
        given = config(tmp_path, client=None, clients=1).model_dump(mode="json")
        made = fedtext.load(changes | {"corpus": given, "model": GRU, "evaluation": {"personalize": None}})
        losses[method] = [record.metrics["loss"] for record in fedtext.run(made).history]
    assert losses["pooled"][0] == pytest.approx(losses["fedavg"][0], rel=1e-3), "batches are drawn otherwise"


def test_no_more_words_are_unknown_than_are_predicted(tmp_path: Path) -> None:
    corpus = prepared(tmp_path, vocabulary=1)
    for report in nonempty(corpus.report):
        assert (np.array(report.unknown) <= report.tokens).all()
    assert sum(report.unknown[0] for report in corpus.report) > 0


def test_byte_pairs_of_prompts_are_given(tmp_path: Path) -> None:
    corpus = prepared(tmp_path, text={"bpe": {"size": 270}})
    for client in nonempty(corpus.clients):
        words = prepared(tmp_path).clients[client.id].test
        assert client.test.bytes_N is not None
        assert words.bytes_N is not None
        assert client.test.bytes_N.tolist() == words.bytes_N.tolist()
    test = corpus.clients[1].test
    rows, given = test.tokens_T[: test.offsets[1]].tolist(), int(test.labels_N[0])
    assert byte_pairs.decode(corpus.tokenizer, rows[1 : 1 + given], framed=True) == "Name a café"
    assert byte_pairs.decode(corpus.tokenizer, rows[1 + given :], framed=True) == " Café A"


def made(model: dict[str, Any], vocabulary: int) -> LanguageModel:
    torch.manual_seed(1)
    kind = CausalLanguageModel if model["name"] == "causal" else RecurrentLanguageModel
    network = whole(Parts(kind.model_validate(model), vocabulary)).double()
    network.embedding = torch.nn.Embedding(vocabulary, 8).double()
    assert isinstance(network, LanguageModel)
    return network


def by_hand(network: LanguageModel, given: Batch) -> tuple[torch.Tensor, list[float]]:
    """-log p of each token of a response, over a table that has no row of <pad>; and the mean of each text."""
    nats = []
    for text, (length, prompt) in enumerate(zip(given.lengths_B.tolist(), given.labels_B.tolist(), strict=True)):
        tokens_T = given.tokens_BT[text, :length].long()
        log_TV = network.following(tokens_T[None, :-1])[0].log_softmax(1)
        nats.append(-log_TV.gather(1, tokens_T[1:, None])[prompt:, 0])
    return torch.cat(nats), [each.mean().item() for each in nats]


ENGINES = [("causal", "reference"), ("gru_lm", "reference"), ("gru_lm", "cells")]
if not compile_problem():
    ENGINES.append(("gru_lm", "native"))


@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_loss_and_gradients_are_of_the_response_alone(tmp_path: Path, name: str, engine: str) -> None:
    corpus = prepared(tmp_path)
    network = made(CAUSAL if name == "causal" else GRU, len(corpus.vocabulary))
    directions = None if engine == "reference" else 1
    for client in nonempty(corpus.clients):
        texts = Texts(client.train, len(corpus.vocabulary))
        assembler = Assembler(directions, False, torch.device("cpu"), engine, ahead=True)
        batch, _ = assembler.single(texts, np.arange(len(texts)))
        nats_S, _ = by_hand(network, batch)
        score = network(batch)
        assert (
            len(score.nats_S)
            == len(nats_S)
            == sum(client.train.offsets[1:] - client.train.offsets[:-1]) - sum(client.train.labels_N + 1)
        )
        assert score.loss.item() == pytest.approx(nats_S.mean().item(), rel=1e-9)
        parameters = list(network.parameters())
        found, expected = (torch.autograd.grad(loss, parameters) for loss in (score.loss, nats_S.mean()))
        assert all(nonempty(torch.allclose(*pair, rtol=1e-8, atol=1e-11) for pair in zip(found, expected, strict=True)))


def test_the_unigram_model_predicts_responses_alone(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    counts: dict[str, int] = {}
    for _, answer in PAIRS:
        for word in [*answer.split(), "</s>"]:
            counts[word] = counts.get(word, 0) + 4
    kinds = len(corpus.vocabulary) - 2
    total = sum(counts.values()) + kinds
    nats = [-math.log((counts[word] + 1) / total) for _, answer in PAIRS for word in [*answer.split(), "</s>"]]
    assert unigram(corpus.clients, 1.0)["nats_per_token_unigram"] == pytest.approx(sum(nats) / len(nats))


@pytest.mark.parametrize("model", [CAUSAL, WIDE], ids=["causal", "gru_lm"])
def test_a_model_learns_to_answer(tmp_path: Path, model: dict[str, Any]) -> None:
    corpus = config(tmp_path, max_length=40).model_dump(exclude_defaults=True) | {"name": "instructions"}
    experiment = {
        "name": "answers",
        "corpus": corpus,
        "model": model,
        "method": "fedavg",
        "training": {"rounds": 4, "local_epochs": 8, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.02}},
        "evaluation": {"personalize": None},
        "audits": [{"name": "membership"}],
    }
    result = fedtext.run(experiment)
    assert result.metrics["perplexity"] < 2
    assert result.model.generate(["Name a café"]) == [" Café A"]
    assert "member_auc" not in result.metrics, "all of its test texts are train texts"
    with (tmp_path / "pairs.jsonl").open("a") as file:
        unseen = {"question": "Why 2 ?", "answer": "It is Café", "split": "test"}
        file.writelines(json.dumps(unseen | {"user": user}) + "\n" for user in ("u0", "u1"))
    result = fedtext.run(experiment)
    assert result.metrics["member_auc"] > 0.9


@pytest.mark.parametrize("text", ["words", {"bpe": {"size": 270}}], ids=["words", "pairs"])
def test_a_prompt_is_read_as_those_of_the_corpus(tmp_path: Path, text: Any) -> None:
    """Its blanks and line ends become single blanks, and the ends of a sentence in it become <unk>."""
    corpus = config(tmp_path, text=text)
    made = prepare(corpus, Embedding(dim=4), 0, None)
    writing = Writing(corpus, made.vocabulary, made.tokenizer)
    test = made.clients[0].test
    expected = test.tokens_T[: 1 + test.labels_N[0]].tolist()
    assert writing.rows(PAIRS[0][0]) == expected
    assert writing.rows(" What  is 2 +\t2 ? ") == expected
    assert writing.rows("Why </s> ?") == writing.rows("Why <unk> ?")


def test_membership_reads_the_mean_over_the_response(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    network = made(GRU, len(corpus.vocabulary))
    texts = Texts(corpus.clients[1].train, len(corpus.vocabulary))
    assembler = Assembler(None, False, torch.device("cpu"), ahead=True)
    batch, _ = assembler.single(texts, np.arange(len(texts)))
    _, means = by_hand(network, batch)
    with torch.no_grad():
        found = per_text(Model(network, {}), network, batch)
    assert found == pytest.approx(means, rel=1e-9)


def test_the_promises_of_a_corpus_are_kept(tmp_path: Path) -> None:
    check_corpus(config(tmp_path, client=None, clients=2))


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="1 of 4 prompts fill 7 tokens, so that nothing is left"):
        prepared(tmp_path, max_length=7, client=None, clients=1, split="split", share=0.25)
    with pytest.raises(
        UserError, match=r"corpus.response: .* has no column 'reply', only question, answer, user, split"
    ):
        prepared(tmp_path, response="reply")
    for options, said in nonempty(
        (
            ({"client": "user", "clients": 3}, "clients: the column client assigns pairs to clients"),
            ({"min_texts": 2, "client": None}, "min_texts: client names no column"),
            ({"response": "question"}, "prompt and response are the column 'question'"),
            ({"text": "hash"}, "use bpe"),
            ({"drop_leaked": "own"}, "leave drop_leaked out"),
        )
    ):
        with pytest.raises(ValidationError, match=said):
            config(tmp_path, **options)
