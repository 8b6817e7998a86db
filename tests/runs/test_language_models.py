"""Language models in a federation: what is trained, what perplexity is, and whose test perplexity is told."""

import json
import math
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import nn
from torch.nn.functional import cross_entropy

from fedtext.config.experiment import Experiment
from fedtext.corpora.types import TokenSet
from fedtext.methods import METHODS as ALL_METHODS
from fedtext.parameters import shared_numbers
from fedtext.server.federation import Federation
from fedtext.training.batches import shuffled
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.language_corpus()
WORDS = len(CORPUS.vocabulary) - 1  # without <pad>
SELECTING = {"personalize": None, "select": "perplexity_val"}


def federation(experiment: Experiment, folder: Path | None = None) -> Federation:
    return tiny.federation(experiment, CORPUS, folder=folder)


class Plain(nn.Module):
    """The model as one would write it down: the entries' numbers, less <pad>, are what is read and predicted."""

    def __init__(self, state: dict[str, NDArray[np.float32]]) -> None:
        super().__init__()
        table = torch.from_numpy(state["embedding.weight"].copy())
        self.embedding = nn.Embedding.from_pretrained(table, freeze=False)
        self.rnn = nn.GRU(table.shape[1], 6, batch_first=True)
        self.rnn.load_state_dict({n[4:]: torch.from_numpy(t.copy()) for n, t in state.items() if n.startswith("rnn.")})
        self.bias = nn.Parameter(torch.from_numpy(state["head.bias"].copy()))
        tied = "head.weight" not in state
        self.weight = self.embedding.weight if tied else nn.Parameter(torch.from_numpy(state["head.weight"].copy()))

    def nats(self, sentence: NDArray[np.int32]) -> torch.Tensor:
        """Of every token but the first."""
        tokens = torch.from_numpy(sentence.astype(np.int64) - 1)
        hidden = self.rnn(self.embedding(tokens[None, :-1]))[0][0]
        return cross_entropy(hidden @ self.weight.T + self.bias, tokens[1:], reduction="none")

    def named(self) -> dict[str, torch.Tensor]:
        found = {"embedding.weight": self.embedding.weight, "head.bias": self.bias, "head.weight": self.weight}
        return found | {f"rnn.{name}": parameter for name, parameter in self.rnn.named_parameters()}


def sentences(tokens: TokenSet) -> list[NDArray[np.int32]]:
    return np.split(tokens.tokens_T, tokens.offsets[1:-1])


@pytest.mark.parametrize("embedding", [{}, {"dim": 300}])
def test_a_model_that_knows_nothing_finds_every_word_as_likely(embedding: dict[str, int]) -> None:
    still = tiny.TRAINING | {"rounds": 1, "optimizer": {"lr": 1e-9}}
    model = {"name": "gru_lm", "embedding": embedding}
    record = next(federation(tiny.language_model(model=model, training=still)).run())
    assert record.metrics["perplexity"] == pytest.approx(WORDS, rel=0.1)


@pytest.mark.parametrize(("tied", "engine"), list(product([True, False], ["reference", "cells"])))
def test_a_round_is_what_one_would_write_down(tied: bool, engine: str) -> None:
    training = tiny.TRAINING | {"rounds": 1, "engine": engine, "optimizer": {"lr": 0.5, "momentum": 0.5}}
    experiment = tiny.language_model(tied=tied, training=training)
    made = federation(experiment)
    before = {name: tensor.copy() for name, tensor in made.state.items()}
    assert sum(map(np.size, before.values())) == shared_numbers(experiment, WORDS, 3, len(CORPUS.vocabulary))
    changes: dict[str, Any] = dict.fromkeys(before, 0.0)
    for client in CORPUS.clients:
        plain, texts = Plain(before), sentences(client.train)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.5, momentum=0.5)
        for chosen in shuffled(len(texts), 4, 2, experiment.seed, 1, client.id):
            optimizer.zero_grad()
            torch.cat([plain.nats(texts[text]) for text in chosen]).mean().backward()
            optimizer.step()
        share = len(texts) / sum(len(each.train) for each in CORPUS.clients)
        for name, now in plain.named().items():
            if name in changes:
                changes[name] = changes[name] + share * (now.detach().numpy() - before[name])
    (record,) = made.run()
    assert max(np.abs(change).max() for change in changes.values()) > 0.1
    for name, tensor in nonempty(made.state.items()):
        np.testing.assert_allclose(tensor, before[name] + changes[name], rtol=1e-4, atol=2e-6, err_msg=name)

    plain = Plain(made.state)
    for suffix, side in (("", "test"), ("_val", "validation")):
        with torch.no_grad():
            each = [torch.cat([plain.nats(s) for s in sentences(getattr(client, side))]) for client in CORPUS.clients]
        told = [record.clients[client.name][f"perplexity{suffix}"] for client in CORPUS.clients]
        assert told == pytest.approx([math.exp(nats.mean()) for nats in each], rel=1e-5)
        assert record.metrics[f"perplexity{suffix}"] == pytest.approx(math.exp(torch.cat(each).mean()), rel=1e-5)
        assert record.metrics[f"perplexity_p90{suffix}"] == max(told)  # of three clients
    words = [plain_rank(plain, sentence) for client in CORPUS.clients for sentence in sentences(client.test)]
    ranks = np.concatenate(words)
    assert record.metrics["top1"] == pytest.approx((ranks < 1).mean())
    assert record.metrics["top3"] == pytest.approx((ranks < 3).mean())
    assert 0 < record.metrics["top1"] < record.metrics["top3"] < 1


def plain_rank(plain: Plain, sentence: NDArray[np.int32]) -> NDArray[np.int64]:
    tokens = torch.from_numpy(sentence.astype(np.int64) - 1)
    with torch.no_grad():
        logits = plain.rnn(plain.embedding(tokens[None, :-1]))[0][0] @ plain.weight.T + plain.bias
    return (logits > logits.gather(1, tokens[1:, None])).sum(1).numpy()


METHODS = [
    "fedavg",
    {"name": "fedprox", "mu": 0.1},
    "scaffold",
    "feddyn",
    "fedatt",
    "fedsgd",
    "local_only",
    "pooled",
    "fedper",
    "lg_fedavg",
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_methods_that_take_any_network_train_one(method: Any) -> None:
    epochs, tied = 1 if method == "fedsgd" else 3, method not in ("fedper", "lg_fedavg")
    training = tiny.TRAINING | {"rounds": 3, "local_epochs": epochs}
    rows = list(federation(tiny.language_model(method, tied=tied, training=training)).run())
    name = "perplexity_Ap_0" if method in ("fedper", "lg_fedavg") else "perplexity"
    assert rows[-1].metrics[name] < rows[0].metrics[name] < 1.2 * WORDS


def test_a_personalised_perplexity_is_of_all_tokens_at_all_its_readings() -> None:
    """Each client's model after two and after four more steps, whose tokens count like those of one long text."""
    training = tiny.TRAINING | {"optimizer": {"lr": 0.1, "momentum": 0.5}}
    personalize = {"steps": 4, "every": 2, "lr_multiplier": 2.0}
    experiment = tiny.language_model(training=training, evaluation={"personalize": personalize})
    made = federation(experiment)
    *_, record = made.run()
    each, ranks = [], []
    for client in CORPUS.clients:
        plain, texts, nats = Plain(made.state), sentences(client.train), []
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.2, momentum=0.5)
        batches = islice(shuffled(len(texts), 4, 3, experiment.seed, training["rounds"] + 1, client.id), 4)
        for step, chosen in enumerate(batches, 1):
            optimizer.zero_grad()
            torch.cat([plain.nats(texts[text]) for text in chosen]).mean().backward()
            optimizer.step()
            if step % 2 == 0:
                nats += [plain.nats(sentence).detach() for sentence in sentences(client.test)]
                ranks += [plain_rank(plain, sentence) for sentence in sentences(client.test)]
        each.append(torch.cat(nats))
    told = [record.clients[client.name]["perplexity_Ap"] for client in CORPUS.clients]
    assert told == pytest.approx([math.exp(nats.mean()) for nats in each], rel=1e-5)
    last = record.metrics
    assert last["perplexity_Ap"] == pytest.approx(math.exp(torch.cat(each).mean()), rel=1e-5)
    assert last["perplexity_p90_Ap"] == max(told)
    assert last["top1_Ap"] == pytest.approx((np.concatenate(ranks) < 1).mean())
    assert last["perplexity_Ap"] < last["perplexity"]
    assert last["perplexity_Ap_val"] < last["perplexity_val"]


def test_a_local_model_is_personal_as_it_is() -> None:
    *_, record = federation(tiny.language_model("local_only", evaluation={"personalize": {"steps": 2}})).run()
    for figures in (record.metrics, *record.clients.values()):
        for name in ("perplexity", "top1", "top3"):
            for suffix in ("", "_val"):
                assert figures[f"{name}_Ap{suffix}"] == figures[f"{name}{suffix}"]
    assert record.metrics["perplexity_p90_Ap"] == record.metrics["perplexity_p90"]


def test_noise_clipping_and_bits_travel_with_every_row_and_have_a_ledger() -> None:
    for uplink in (
        [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.01}}],
        [{"quantize": {"q": 0.01}}, {"randomized_response": {"epsilon": 5.0}}],
    ):
        made = federation(tiny.language_model(uplink=uplink))
        rows = list(made.run())
        numbers = sum(np.size(tensor) for tensor in made.state.values())
        assert rows[0].metrics["epsilon"] > 0
        assert "ledger.json" in rows[0].files
        if "quantize" in uplink[0]:
            assert numbers / 8 < rows[0].metrics["bytes_up"] / 3 < numbers / 8 + 1000


# Whose model counts


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"name": "bigru"}}, "use model gru_lm"),
        ({"corpus": {"name": "demo"}}, "predicts the next words"),
        ({"method": "kteps"}, "no language models"),
        ({"training": {"stack": 4}}, "softmax over the vocabulary"),
        ({"wire": {"rows": "own"}}, "leave rows at auto"),
        ({"evaluation": SELECTING, "method": "lg_fedavg", "tied": False}, "keeps parts of it"),
        ({"method": "fedper"}, "set model.tied to false"),
        ({"evaluation": {"personalize": None, "select": "Ag_val"}}, "fedavg and gru_lm: use .* or perplexity_val"),
        ({"evaluation": {"personalize": None, "thresholds": {"AUC_val": [0.5]}}}, "AUC_val is not evaluated"),
        ({"evaluation": {"personalize": None, "thresholds": {"perplexity_val": [9, 9.0]}}}, "different numbers"),
        ({"method": {"name": "fedatt", "attention": "uniform", "norm": "spectral"}}, "leave norm out"),
        ({"evaluation": SELECTING, "corpus": {"name": "ptb", "validation": 0}}, "need validation texts"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_what_does_not_go_together_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        tiny.language_model(**changes)


def test_no_other_method_trains_language_models() -> None:
    names = {method["name"] if isinstance(method, dict) else method for method in METHODS}
    assert {name for name, method in ALL_METHODS.items() if method.language} == names
