"""Exposure of planted secrets: the exact rank against brute force, and what is found in real training."""

import itertools
from dataclasses import replace
from math import inf, isnan, log2, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from fedtext.accounting.entry import Entry
from fedtext.audits.exposure import Found, rank, searched
from fedtext.config.experiment import Experiment
from fedtext.corpora.prepare import prepare
from fedtext.corpora.ptb import PTBCorpus
from fedtext.corpora.secrets import Secret, Secrets
from fedtext.corpora.types import Corpus, RawClient, Split, TokenSet
from fedtext.errors import UserError
from fedtext.ledger import ledger
from fedtext.ledger.report import reveals
from fedtext.models.language import LanguageModel, RecurrentLanguageModel, RecurrentNetwork
from fedtext.server.sampling import sampled
from fedtext.text.tokens import decode
from tests import tiny
from tests.loops import nonempty

VOCABULARY, DIGITS = 14, [3, 4, 6, 7, 9]


def network(layers: int = 1, tied: bool = True, seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    config = RecurrentLanguageModel(hidden=6, embedding={"dim": 6}, layers=layers, tied=tied)
    made = RecurrentNetwork(config, VOCABULARY, nn.Embedding(VOCABULARY, 6)).eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=1.0)
    return made.requires_grad_(requires_grad=False)


def nats(model: LanguageModel, prefix: list[int], words: tuple[int, ...]) -> float:
    """-log p of words after a prefix, all at once."""
    tokens = torch.tensor([[*prefix, *words]])
    log_TV = model.following(tokens)[0].log_softmax(1)
    return -sum(float(log_TV[len(prefix) - 1 + place, word]) for place, word in enumerate(words))


@pytest.mark.parametrize(("layers", "tied"), [(1, True), (2, False)])
def test_ranks_are_those_of_all_candidates_one_by_one(layers: int, tied: bool) -> None:
    model, prefix = network(layers, tied), [2, 11, 5]
    found = {words: nats(model, prefix, words) for words in itertools.product(DIGITS, repeat=3)}
    order = sorted(found, key=found.__getitem__)
    for place in (0, 1, 60, 123, 124):
        assert rank(model, prefix, list(order[place]), DIGITS) == place + 1


def test_many_candidates_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, secret = network(), [9, 9, 3, 6]
    whole = rank(model, [2], secret, DIGITS)
    monkeypatch.setattr("fedtext.audits.exposure.CHUNK", 7)
    assert rank(model, [2], secret, DIGITS) == whole > 7


def test_a_model_that_tells_no_words_apart_exposes_nothing() -> None:
    model = network()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    found = Found(Secret(("a",), ("1", "2", "3"), 4), rank(model, [2], [3, 4, 6], [*DIGITS]), extracted=False)
    assert found.rank == 5**3
    assert Found(found.secret, 1000, extracted=False).exposure == pytest.approx(0)
    assert Found(found.secret, 1, extracted=True).exposure == pytest.approx(3 * log2(10))


@pytest.mark.parametrize("value", [nan, inf])
def test_a_model_without_probabilities_has_no_rank(value: float) -> None:
    model = network()
    nn.init.constant_(next(model.parameters()), value)
    found = Found(Secret(("a",), ("1", "2", "3"), 4), rank(model, [2], [3, 4, 6], DIGITS), extracted=False)
    assert found.rank is None
    assert isnan(found.exposure)


def test_beam_search_finds_the_most_probable_words_where_it_keeps_enough() -> None:
    model, prefix = network(seed=3), [2, 8]
    best = min(itertools.product(range(VOCABULARY), repeat=2), key=lambda words: nats(model, prefix, words))
    assert searched(model, prefix, 2, VOCABULARY) == list(best)
    first = int(model.following(torch.tensor([prefix]))[0, -1].argmax())
    greedy = searched(model, prefix, 2, 1)
    assert greedy == [first, int(model.following(torch.tensor([[*prefix, first]]))[0, -1].argmax())]


LINES = ["the cat sat on the mat", "a dog ran away", "the cow ran to the cat", "a cat and a dog sat"]
ASKED: dict[str, Any] = {"insertions": [1, 12], "each": 2, "digits": 3}


def folder(path: Path) -> Path:
    for side in ("train", "valid", "test"):  # membership leaves out test sentences that are in train
        lines = [" ".join(line.split()[::-1]) for line in LINES] if side == "test" else LINES
        (path / f"ptb.{side}.txt").write_text("".join(f"{line}\n" for line in lines * 5))
    return path


def experiment(**changes: Any) -> Experiment:
    corpus = {"name": "ptb", "clients": 3, "validation": 0, "secrets": ASKED} | changes.pop("corpus", {})
    return tiny.language_model(corpus=corpus, **changes)


def read(tokens: TokenSet, vocabulary: list[str]) -> list[str]:
    """The sentences of a client, whose rows are those of the vocabulary."""
    rows = np.arange(len(vocabulary), dtype=np.int32)
    return [" ".join(words) for words in decode(tokens.tokens_T, tokens.offsets, rows, vocabulary)]


def prepared(made: Experiment, path: Path) -> Corpus:
    return prepare(made.corpus, made.model.embedding, made.seed, folder(path))


def test_secrets_stand_where_they_are_planted_and_nowhere_else(tmp_path: Path) -> None:
    plain, made = (prepared(experiment(corpus={"secrets": asked}), tmp_path) for asked in (None, ASKED))
    secrets = Secrets(**ASKED).drawn(0)
    assert [secret.insertions for secret in secrets] == [1, 1, 12, 12, 0, 0]
    assert len({secret.prefix for secret in secrets}) == 6
    texts = [read(client.train, made.vocabulary) for client in made.clients]
    for secret in nonempty(secrets):
        counts = sorted(side.count(secret.sentence) for side in texts)
        assert counts == [0, 0, secret.insertions]
    assert sum(map(len, texts)) == sum(len(client.train) for client in plain.clients) + 2 * 13
    for one, other in nonempty(zip(plain.clients, made.clients, strict=True)):
        assert read(one.test, plain.vocabulary) == read(other.test, made.vocabulary)
    assert made.vocabulary[: len(plain.vocabulary)] != plain.vocabulary, "frequent words of secrets count too"
    assert set(made.vocabulary) == {*plain.vocabulary, *(word for s in secrets for word in s.prefix), *"0123456789"}
    assert len(made.vocabulary) == len(set(made.vocabulary))
    assert made.digest != plain.digest


def test_words_of_secrets_are_in_a_small_vocabulary(tmp_path: Path) -> None:
    made = prepared(experiment(corpus={"vocabulary": 3}), tmp_path)
    assert {"the", *"0123456789", "control1"} <= set(made.vocabulary)
    assert "cow" not in made.vocabulary


def test_several_clients_can_have_the_same_secret(tmp_path: Path) -> None:
    asked = {"insertions": [2], "each": 1, "digits": 2, "clients": 2, "prefix": "call {} at"}
    made = prepared(experiment(corpus={"secrets": asked}), tmp_path)
    (secret, _) = Secrets(**asked).drawn(0)
    counts = sorted(read(client.train, made.vocabulary).count(secret.sentence) for client in made.clients)
    assert counts == [0, 2, 2]
    with pytest.raises(UserError, match="4 clients are to have a secret, and there are 3: lower it"):
        prepared(experiment(corpus={"secrets": asked | {"clients": 4}}), tmp_path)


def test_a_corpus_with_the_names_of_secrets_is_refused() -> None:
    split = Split(["<s> ask control0 </s>"], np.zeros(1, np.int64))
    with pytest.raises(UserError, match="'control0' is a word of shop: use another corpus"):
        Secrets().plant([RawClient("shop", split, split)], 0)


TRAINING: dict[str, Any] = {"rounds": 3, "local_epochs": 30, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.02}}
MODEL = {"name": "gru_lm", "embedding": {"dim": 16}, "hidden": 16}


def test_what_was_planted_often_is_exposed_and_what_was_not_is_not(tmp_path: Path) -> None:
    """With and without the audit the results are the same."""
    asked = {"insertions": [25], "each": 1, "digits": 3, "clients": 3}
    audited, plain = (
        experiment(audits=audits, training=TRAINING, model=MODEL, corpus={"secrets": asked})
        for audits in (["exposure"], [])
    )
    corpus = prepared(audited, tmp_path)
    runs = [tiny.federation(made, corpus) for made in (audited, plain)]
    records = [list(run.run()) for run in runs]
    assert runs[0].flat.tobytes() == runs[1].flat.tobytes()
    found = records[0][-1].metrics
    assert found["exposure_25"] == pytest.approx(3 * log2(10))
    assert found["extracted_25"] == 1
    assert found["exposure_control"] < 7
    assert found["extracted_control"] == 0
    own = {name for name in found if name.startswith(("exposure", "extracted"))}
    assert own == set(found) - set(records[1][-1].metrics)
    assert not own & set(records[0][0].metrics), "only the released model is attacked"
    lines = records[0][-1].files["exposure.md"].splitlines()
    assert [line.split(" | ")[2] for line in lines[-2:]] == ["25", "control"]
    assert "1 of 1,000" in lines[-2]


@pytest.mark.parametrize("failing", [0, 1], ids=["all return", "the first fails"])
def test_secrets_are_ranked_whichever_clients_return(failing: int, tmp_path: Path, caplog: Any) -> None:
    """Two of six clients are evaluated and two take part. The model is attacked once."""
    asked, corpus = {"insertions": [2], "each": 1, "digits": 2}, {"clients": 6}
    for seed in range(3):
        made = experiment(
            audits=["exposure"],
            seed=seed,
            corpus=corpus | {"secrets": asked},
            training=tiny.TRAINING | {"rounds": 1},
            evaluation={"personalize": None, "clients": 2},
            participation={"fraction": 0.34, "on_client_error": "skip"},
        )
        federation = tiny.federation(made, prepared(made, tmp_path))
        worker, cohort = federation.fleet.worker, sampled(made, range(6), 1, federation.fleet.noise)
        attacked = federation.fleet.clients.audited(cohort, last=True)
        assert sorted(attacked) == sorted(cohort)
        for client in attacked[:failing]:
            data = worker.clients[client]
            worker.clients[client] = replace(data, train=data.train.take(np.zeros(0, np.int64)))
        (record,) = federation.run()
        assert 0 <= record.metrics["exposure_2"] <= 2 * log2(10)
        assert "exposure.md" in record.files
        (whose,) = [name for name, found in record.clients.items() if "exposure_2" in found]
        assert whose == federation.names[attacked[failing]]
    assert not [one.message for one in caplog.records if "after the last round" in one.message]


def test_what_is_planted_is_said_in_ledger_and_report() -> None:
    made, plain = experiment(), experiment(corpus={"secrets": None})
    said = made.corpus.planted
    assert said.startswith("4 sentences that are not the corpus's own are planted in train texts, each with 3 random")
    assert ledger(made, 10, 3, 2)[-1] == Entry("corpus.secrets", "run", None, 0.0, said)
    assert ledger(plain, 10, 3, 2) == ledger(made, 10, 3, 2)[:-1]
    assert f"ledger: corpus.secrets: {said}" in reveals(made, ledger(made, 10, 3, 2))


@pytest.mark.parametrize("method", ["fedavg", "fedatt", "fedprox", "scaffold"])
@pytest.mark.parametrize("uplink", [[], [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.1}}]], ids=["none", "noise"])
def test_methods_and_mechanisms(method: str, uplink: Any, tmp_path: Path) -> None:
    asked = {"insertions": [2], "each": 1, "digits": 2}
    training = tiny.TRAINING | {"rounds": 1}
    audits = ["exposure", {"membership": {"attack": {"rmia": {"shadows": 2}}}}]
    made = experiment(method=method, uplink=uplink, training=training, audits=audits, corpus={"secrets": asked})
    *_, record = tiny.federation(made, prepared(made, tmp_path)).run()
    assert 0 <= record.metrics["exposure_2"] <= 2 * log2(10)
    assert 0 <= record.metrics["member_user_auc"] <= 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"audits": ["exposure"], "corpus": {"secrets": None}}, "none are planted: set corpus.secrets"),
        ({"audits": ["exposure"], "method": "local_only"}, "exposure uses the server's model, and method local_only"),
        ({"corpus": {"secrets": {"insertions": [1, 1]}}}, "they must be different numbers from 1 to 10,000"),
        ({"corpus": {"secrets": {"insertions": [0]}}}, "they must be different numbers from 1 to 10,000"),
        ({"corpus": {"secrets": {"prefix": "my pin is"}}}, "write lower-case words with one {} among them"),
        ({"corpus": {"secrets": {"prefix": "pin 4 of {}"}}}, "digits would be taken for other parts of the sentence"),
        ({"corpus": {"secrets": {}, "max_length": 9}}, "a sentence has 13 tokens, more than max_length"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        experiment(**changes)


def test_of_classes_there_are_no_secrets() -> None:
    with pytest.raises(ValidationError, match="exposure is for language models, and model bigru is none: leave it out"):
        tiny.experiment(audits=["exposure"])
    assert PTBCorpus().planted == ""
    assert PTBCorpus().planted_words(0) == []
