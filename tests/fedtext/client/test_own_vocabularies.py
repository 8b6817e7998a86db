"""Vocabularies and embeddings of clients' own, and how unequal clients are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fedtext.config.experiment import Experiment
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import ClientData, Corpus
from fedtext.errors import UserError
from fedtext.evaluation import Evaluated, pooled
from fedtext.layout import TABLE
from fedtext.ledger.report import reveals
from fedtext.models.initial_table import source_of
from fedtext.parameters import initial
from fedtext.text.tokens import UNK, UNK_ID
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.fedtext.methods.test_fedevocab import BAG, digits_of, federated
from tests.loops import nonempty
from tune_spaces.objectives import check_metric


def with_digits(corpus: Corpus) -> Corpus:
    """Every third word counts as one with a digit in it."""
    rows_V = np.arange(len(corpus.vocabulary))
    return replace(corpus, digits_V=(rows_V % 3 == 0) & (rows_V > 0))


def demo(method: Any = "fedevocab", **changes: Any) -> Experiment:
    changes = {"corpus": {"name": "demo", "max_length": 9}} | changes
    return tiny.experiment(method, **changes)


def encoded(experiment: Experiment) -> Corpus:
    how = experiment.corpus, experiment.model.embedding, experiment.seed, None, experiment.own_vocabularies
    return prepare(*how)


def test_a_client_has_the_words_of_its_own_train_texts_the_most_frequent_first() -> None:
    experiment = demo()
    assert experiment.own_vocabularies
    corpus, raw = encoded(experiment), experiment.corpus.read(None, 0)
    orders = []
    for client, given in nonempty(zip(corpus.clients, raw.clients, strict=True)):
        words = [corpus.vocabulary[row] for row in client.rows_R]
        counts = [sum(text.split().count(word) for text in given.train.texts) for word in words[2:]]
        assert words[:2] == ["<pad>", UNK]
        assert set(words[2:]) == {word for text in given.train.texts for word in text.split()}
        assert counts == sorted(counts, reverse=True)
        assert client.train_rows == len(client.rows_R)
        known = set(words)
        for tokens, split in ((client.train, given.train), (client.test, given.test)):
            for i, text in nonempty(enumerate(split.texts)):
                read = [words[token] for token in tokens.tokens_T[tokens.offsets[i] : tokens.offsets[i + 1]]]
                assert read == [word if word in known else UNK for word in text.split()[:9]]
        orders.append([word for word in words if word in corpus.vocabulary[:60]])
    assert len({len(client.rows_R) for client in corpus.clients}) > 1
    assert any(one != other for one, other in pairwise(orders))
    rare = encoded(demo(corpus={"name": "demo", "max_length": 9, "min_count": 9, "vocabulary": 20}))
    assert all(nonempty(2 < len(client.rows_R) <= 22 for client in rare.clients))
    assert any((client.train.tokens_T == UNK_ID).any() for client in rare.clients)


def test_a_client_also_knows_the_words_of_the_vectors_that_it_starts_from(tmp_path: Path) -> None:
    experiment = demo()
    raw = experiment.corpus.read(None, 0)
    train = [{word for text in client.train.texts for word in text.split()} for client in raw.clients]
    new = [
        {word for text in client.test.texts for word in text.split()[:9]} - train[number]
        for number, client in enumerate(raw.clients)
    ]
    tested = {word for client in raw.clients for text in client.test.texts for word in text.split()[:9]}
    given = sorted({word for words in new for word in words})[::2]
    assert all(nonempty(0 < len(words & set(given)) < len(words) for words in new)), (
        "some of what is new to a client, not all"
    )
    (tmp_path / "v.txt").write_text("".join(f"{word} {place} 1\n" for place, word in enumerate(given)))
    known = {"file": {"path": str(tmp_path / "v.txt")}}
    each = {"each": {"sources": [known, {"random": {}}]}}
    for name, init, own in (
        ("gru", known, None),
        ("gru", each, None),
        ("gru", known, {"words": "all"}),
        ("bag", known, None),  # it has no <pad>
    ):
        model = {"name": name, "embedding": {"dim": 2, "init": init, "own": own}}
        experiment = demo(model=model, evaluation={"personalize": None, "union": {}}, training=SHORT)
        corpus = encoded(experiment)
        hosted = federated(experiment, corpus).fleet.worker  # type: ignore[attr-defined]
        readers = set()
        for client, words, fresh in nonempty(zip(corpus.clients, train, new, strict=True)):
            names = [corpus.vocabulary[row] for row in client.rows_R]
            reads = own is None and (init is known or source_of(0, client.id, 2) == 0)
            expected = fresh & set(given) if reads else set()
            assert set(names[2 : client.train_rows]) == words
            assert set(names[client.train_rows :]) == expected
            texts, rows_U = hosted.union_texts(client.id)
            there_NT = np.arange(texts.padded_NT.shape[1]) < texts.lengths_N[:, None]
            tokens_T = texts.padded_NT[there_NT]
            everywhere = {corpus.vocabulary[rows_U[token] + hosted.rows.start] for token in np.unique(tokens_T)}
            assert everywhere - {UNK} == tested & (words | (set(given) if reads else set()))
            assert expected <= everywhere
            readers.add(reads)
            table_RD = hosted.stack(federated(experiment, corpus).flat, [client.id]).tensors(0)[TABLE]
            place = np.flatnonzero(client.rows_R == UNK_ID)
            assert not table_RD[torch.from_numpy(place - hosted.rows.start)].any(), "<unk> is nothing at first"
            of_file = [[given.index(name), 1] for name in names[client.train_rows :]]
            assert table_RD[client.train_rows - hosted.rows.start :].tolist() == of_file
            if reads:
                rows_X = np.array([corpus.vocabulary.index(word) for word in given], np.int32) - hosted.rows.start
                table_XD = hosted.rows_of(federated(experiment, corpus).flat, client.id, TABLE, rows_X)
                assert table_XD.tolist() == [[place, 1] for place in range(len(given))]
        assert readers == ({True, False} if "each" in init else {own is None})
        assert any("words of the vectors" in said for said in reveals(experiment)) == (own is None)


def test_nothing_of_a_vocabulary_leaves_a_client() -> None:
    experiment = demo()
    corpus = encoded(experiment)
    private = initial(experiment, corpus)[1]
    federation = tiny.federation(experiment, corpus, tiny.Recording)
    fleet = federation.fleet
    list(federation.run())
    sizes = {reply.bytes_up for reply in fleet.received}
    assert len(sizes) == 1, "however many words a client has"
    assert sizes.pop() < private[TABLE].nbytes
    said = " ".join(reveals(experiment))
    assert "no one else knows which words are in it" in said
    assert "no embedding table leaves a client" in said
    assert "word counts" not in said


SHORT = tiny.TRAINING | {"rounds": 1}
SOURCES = {"each": {"sources": [{"random": {"std": 1.0}}, {"random": {"std": 0.001}}]}}
EACH, OWN = (SCRATCH | {"adapter": {}, "embedding": {"dim": 8} | more} for more in ({"init": SOURCES}, {"own": {}}))
ADAPTED = {"method": "fedavg", "model": EACH}


def test_clients_start_from_different_sources_and_with_numbers_of_their_own() -> None:
    model = {"embedding": {"dim": 50, "init": SOURCES}, "hidden": 4}
    experiment = demo(model=model)
    corpus = encoded(experiment)
    federation = federated(experiment, corpus)
    worker = federation.fleet.worker  # type: ignore[attr-defined]

    def table(client: ClientData) -> np.ndarray:
        return worker.stack(federation.flat, [client.id]).tensors(0)[TABLE].numpy().copy()

    spreads = [round(float(table(client).std()), 1) for client in corpus.clients]
    assert set(spreads) == {0.0, 1.0}
    same = [client for client, spread in zip(corpus.clients, spreads, strict=True) if spread == 1.0][:2]
    rows, *places = np.intersect1d(same[0].rows_R, same[1].rows_R, return_indices=True)
    starts = [table(client)[place] for client, place in zip(same, places, strict=True)]
    assert np.array_equal(*starts), "the same word starts alike where the source is the same"

    embedding = {"dim": 50, "init": {"random": {"std": 0.001}}, "own": {"std": 2.0}}
    experiment = demo(model={"embedding": embedding, "hidden": 4})
    digits = with_digits(corpus)
    federation = federated(experiment, replace(digits, table_VD=None))
    worker = federation.fleet.worker  # type: ignore[attr-defined]
    for client in nonempty(digits.clients):
        drawn = table(client)
        digits_R = digits_of(digits, client)
        assert drawn[~digits_R].std() < 0.01 < 1.5 < drawn[digits_R].std() < 2.5
    starts = [table(client)[place] for client, place in zip(same, places, strict=True)]
    assert (np.abs(starts[0] - starts[1]).max(1) > 0.1).tolist() == ((rows % 3 == 0) & (rows > 0)).tolist()
    embedding = {"dim": 50, "own": {"words": "all", "std": 2.0}}
    federation = federated(demo(model={"embedding": embedding, "hidden": 4}), replace(corpus, table_VD=None))
    worker = federation.fleet.worker  # type: ignore[attr-defined]
    starts = [table(client)[place] for client, place in zip(same, places, strict=True)]
    assert (np.abs(starts[0] - starts[1]).max(1) > 0.1).tolist() == (rows != UNK_ID).tolist()
    assert 1.8 < table(same[0]).std() < 2.2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "fedavg", "corpus": {"name": "demo", "own_vocabularies": True}}, "use fedevocab or local_only"),
        ({"method": "fedavg", "model": {"embedding": {"init": SOURCES}}}, "init: each gives clients embeddings"),
        ({"method": "fedavg", "model": {"embedding": {"own": {}}}}, "own gives clients embeddings"),
        (ADAPTED, "init: each gives clients .*, and model transformer leaves one for all as it is: leave it out"),
        (ADAPTED | {"model": OWN}, "own gives clients .*, and model transformer leaves one"),
        ({"method": "fedrecon", "model": {"embedding": {"own": {"words": "all"}}}}, "use {words: digits}"),
        ({"corpus": {"name": "demo", "text": "hash", "own_vocabularies": True}}, "public"),
        ({"method": "fedrecon", "corpus": {"name": "demo", "text": "hash"}}, "needs the digits of words"),
        ({"corpus": {"name": "demo", "text": "hash", "min_count": 2}}, "min_count: all buckets"),
    ],
)
def test_what_does_not_go_together_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        tiny.experiment(**({"method": "fedevocab"} | changes))
    assert not tiny.experiment("fedevocab", corpus={"name": "demo", "own_vocabularies": False}).own_vocabularies
    assert tiny.experiment("fedrecon", model={"embedding": {"own": {"words": "digits"}}}).model.embedding.own
    assert tiny.experiment("local_only", model=OWN).model.embedding.own


def test_a_sweep_is_sorted_by_what_each_client_has() -> None:
    corpus, both = {"name": "demo", "validation": 0.2}, {"personalize": None, "union": {}}
    for metric in ("Local_val", "Global"):
        with pytest.raises(UserError, match=f"{metric} is not computed for .*, it needs evaluation.union"):
            check_metric(tiny.experiment("fedevocab", corpus=corpus, tune={"metric": metric}))
        check_metric(tiny.experiment("fedevocab", corpus=corpus, evaluation=both, tune={"metric": metric}))
    rows = list(federated(e := demo(corpus=corpus, evaluation=both, training=SHORT), encoded(e)).run())
    assert e.evaluated_metrics <= set(rows[-1].metrics) | {"AUC_0", "AUC_0_val"}
    assert rows[-1].metrics["Local_val"] == rows[-1].metrics["Ap_0_val"]


def accuracy(network: torch.nn.Module, state: Mapping[str, Tensor], texts: list[list[int]], labels: list[int]) -> float:
    """Of a bag: ReLU of the sum of a text's distinct rows, and one layer."""
    right = 0
    for rows, label in zip(texts, labels, strict=True):
        hidden = torch.relu(state[TABLE][sorted(set(rows))].sum(0) + state["encoder.bias"])
        logits = state["head.0.weight"] @ hidden + state["head.0.bias"]
        right += int(logits.argmax()) == label
    return right / len(texts)


@pytest.mark.parametrize("method", ["fedavg", "lg_fedavg", "fedper", "local_only", "fedevocab", "fedrecon"])
def test_local_and_global_by_hand(method: str) -> None:
    training = {"rounds": 2, "local_epochs": 2, "batch_size": 8, "optimizer": {"lr": 0.1}}
    evaluation = {"personalize": None, "union": {}}
    experiment = demo(method, model=BAG, training=training, evaluation=evaluation)
    corpus = with_digits(encoded(experiment))
    federation = federated(experiment, corpus)
    rows = list(federation.run())
    assert "Global" not in rows[0].metrics, "read once, in the end"
    worker, raw = federation.fleet.worker, experiment.corpus.read(None, 0)  # type: ignore[attr-defined]
    row_of = {word: row for row, word in enumerate(corpus.vocabulary)}
    found = []
    for client in nonempty(corpus.clients):
        kept = worker.private.get(client.id, {})
        if method == "fedrecon":  # its own rows are made anew
            stack = worker.stack(federation.flat, [client.id])
            for phase in worker.method.before_evaluation():
                worker.run(phase, stack, federation.flat, [client.id], 2)
            kept = {TABLE: stack.tensors(0)[TABLE].numpy().copy()}
        sources = federation.state | worker.given.unshared
        state = {name: torch.from_numpy(np.array(kept.get(name, tensor))) for name, tensor in sources.items()}
        if TABLE in kept:  # in the client's own rows: put them where they belong
            whole = torch.from_numpy(np.array(sources[TABLE]))
            whole[torch.from_numpy(client.rows_R[1:] - 1).long()] = state[TABLE]
            state[TABLE] = whole
        own = {corpus.vocabulary[row] for row in client.rows_R}

        def read(text: str, own: set[str] = own) -> list[int]:
            known = own if experiment.own_vocabularies else row_of
            return [row_of[word if word in known and word in row_of else UNK] - 1 for word in text.split()[:9]]

        texts = [
            (read(text), int(label))
            for c in raw.clients
            for text, label in zip(c.test.texts, c.test.labels, strict=True)
        ]
        found.append(accuracy(worker.network, state, *map(list, zip(*texts, strict=True))))
        figures = rows[-1].clients[client.name]
        assert figures["Global"] == pytest.approx(found[-1])
        assert figures["Local"] == figures["Ag" if "Ag" in figures else "Ap_0"]
    metrics = rows[-1].metrics
    assert metrics["Global"] == pytest.approx(np.mean(found))
    assert metrics["Global_geometric"] == pytest.approx(math.exp(np.mean(np.log(found))))
    assert (len(set(found)) == 1) == (method == "fedavg")


def test_only_some_of_everybodys_texts_and_those_of_unequal_clients() -> None:
    def one(texts: Any) -> float:
        evaluation = {"personalize": None, "union": {"texts": texts}}
        experiment = demo("lg_fedavg", model=BAG, training=SHORT, evaluation=evaluation)
        return list(federated(experiment, encoded(experiment)).run())[-1].metrics["Global"]

    assert one(7) != one("all")
    assert one(10**6) == one("all")

    def pooled_metrics(name: str, values: Sequence[float]) -> dict[str, float]:
        return pooled([Evaluated({name: value}) for value in values])

    assert pooled_metrics("Local", [0.1 * n for n in range(1, 11)]) == {"Local_p10": pytest.approx(0.2)}
    assert pooled_metrics("Local", [0.01 * n for n in range(1, 41)]) == {"Local_p10": pytest.approx(0.05)}
    assert pooled_metrics("Local", [0.5, 0.4, 0.9]) == {"Local_p10": 0.4}
    assert pooled_metrics("Global", [0.25, 1.0]) == {"Global_geometric": pytest.approx(0.5)}
    with np.errstate(divide="raise"):
        assert pooled_metrics("Global", [0.25, 0.0]) == {"Global_geometric": 0.0}
