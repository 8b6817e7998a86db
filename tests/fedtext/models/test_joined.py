"""Features beside word vectors: joined to them before the dense layers, and no rows of the table."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtext.client.participants import participants
from fedtext.client.texts import texts_of
from fedtext.config.experiment import Experiment
from fedtext.corpora.movielens_files import GENRES
from fedtext.corpora.prepare import prepare
from fedtext.corpora.rows import within
from fedtext.corpora.types import Corpus, TokenSet
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.methods import METHODS, FedAvg
from fedtext.methods.base import Model
from fedtext.models.parts import Parts
from fedtext.models.vectors import VectorClassifier
from fedtext.parameters import initial, shared_numbers
from fedtext.server.federation import Federation
from fedtext.training.batches import Assembler, Texts
from fedtext.training.token_sets import first
from fedtext.wire import encoding
from tests import tiny
from tests.fedtext.corpora.test_movielens import write_1m, write_latest
from tests.fedtext.corpora.test_rows import CLIENT, FEATURES, KNOWN, WORDS
from tests.loops import nonempty

CPU = torch.device("cpu")
VECTORS = {"name": "vectors", "embedding": {"dim": 4}, "hidden": [5], "output": "sigmoid"}
FLAT = VECTORS | {"pooling": "flat", "words": 2, "order": "first"}


def through(config: VectorClassifier, texts: Texts) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The logits of all texts, and what they were made with; the table has the three words' rows."""
    torch.manual_seed(0)
    network = FedAvg().network(Parts(config, classes=2, corpus_features=FEATURES)).double()
    drawn = {name: tensor.detach().clone().requires_grad_() for name, tensor in network.named_parameters()}
    drawn[TABLE] = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    batch, _ = Assembler(None, False, CPU).single(texts, np.arange(len(texts)))
    return Model(network, drawn)(batch), drawn


@pytest.mark.parametrize("model", [VECTORS, FLAT, VECTORS | {"hidden": []}], ids=["mean", "flat", "logistic"])
def test_they_are_joined_to_the_vectors_before_the_dense_layers(model: dict[str, Any]) -> None:
    config, train = VectorClassifier.model_validate(model), within(CLIENT, range(1, WORDS), FEATURES).train
    texts = Texts(first(train, 2), 3) if model is FLAT else Texts(train, 3, as_sets=True, counting="shares")
    logits_BC, drawn = through(config, texts)
    table = drawn[TABLE].detach().clone().requires_grad_()
    none = torch.zeros(4, dtype=torch.float64)
    if model is FLAT:
        text = torch.stack([torch.cat([table[1], table[0]]), torch.cat([table[0], none]), torch.cat([none, none])])
    else:
        text = torch.stack([float(np.float32(2 / 3)) * table[1] + float(np.float32(1 / 3)) * table[0], table[0], none])
    widths = [text.shape[1] + FEATURES, *config.hidden, 1]
    layers: list[nn.Module] = []
    for number, (wide, narrow) in enumerate(pairwise(widths)):
        layer = nn.Linear(wide, narrow).double()
        layer.load_state_dict({part: drawn[f"head.{number}.{part}"] for part in ("weight", "bias")})
        layers += [layer, nn.ReLU()]
    plain = nn.Sequential(*layers[:-1])
    unit_B = plain(torch.cat([text, torch.from_numpy(KNOWN).double()], 1))[:, 0]
    expected_BC = torch.stack([torch.zeros_like(unit_B), unit_B], 1)
    assert torch.allclose(logits_BC, expected_BC, rtol=1e-12)
    got = torch.autograd.grad(cross_entropy(logits_BC, torch.tensor([0, 1, 1])), list(drawn.values()))
    cross_entropy(expected_BC, torch.tensor([0, 1, 1])).backward()
    expected = [table.grad, *(parameter.grad for parameter in plain.parameters())]
    assert next(iter(drawn)) == TABLE
    for name, one, other in zip(drawn, got, expected, strict=True):
        assert other is not None
        assert other.any(), name
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-15), name


def test_dropout_strikes_them_like_all_that_the_layers_read() -> None:
    config = VectorClassifier.model_validate(VECTORS | {"hidden": [], "dropout": 0.5, "pooling": "mean"})
    encoder = Parts(config, classes=2, corpus_features=1000).encoder()
    data = TokenSet(np.zeros(0, np.int32), np.zeros(2, np.int64), np.zeros(1), features_NK=np.ones((1, 1000), "f4"))
    batch, _ = Assembler(None, False, CPU).single(Texts(data, 1), np.arange(1))
    torch.manual_seed(0)
    features_F = encoder(nn.Embedding(1, 4), batch)[0]
    assert features_F.shape == (1004,)
    assert set(features_F.tolist()) == {0, 2}
    assert 400 < int((features_F[4:] == 0).sum()) < 600


# On a small MovieLens


def made(model: dict[str, Any], method: Any = "fedavg", data: Path | None = None, **changes: Any) -> Experiment:
    corpus = {"name": "movielens", "clients": 2, "test": 0.25} | changes.pop("corpus", {})
    if data is not None:
        init = {"file": {"path": str(data / "vectors.txt"), "missing": changes.pop("missing", "zero")}}
        model = model | {"embedding": {"dim": 4, "init": init}}
    return tiny.experiment(method, model=model, corpus=corpus, **changes)


def encoded(experiment: Experiment, data: Path) -> Corpus:
    return prepare(experiment.corpus, experiment.model.embedding, experiment.seed, data)


def federated(experiment: Experiment, corpus: Corpus) -> Federation:
    return tiny.federation(experiment, corpus)


@pytest.fixture
def latest(tmp_path: Path) -> Path:
    lines = ("caf 1 2 3 4", "war -1 0.5 0 2", "comedy 0.5 0.5 0.5 -0.5", "feature 9 9 9 9")
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    return write_latest(tmp_path, "csv")


K = 2 + len(GENRES)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"fedrecon"}))  # no word here has a digit in it
@pytest.mark.parametrize("model", [VECTORS, FLAT], ids=["mean", "flat"])
def test_every_method_trains_them_and_counts_its_numbers(latest: Path, model: dict[str, Any], method: str) -> None:
    experiment = made(model, method, corpus={"own_vocabularies": False})
    corpus = encoded(experiment, latest)
    assert corpus.features == K
    shared, _ = initial(experiment, corpus)
    counts = experiment, corpus.classes, len(corpus.clients), len(corpus.vocabulary), corpus.features
    assert shared_numbers(*counts) == (1 + (method == "scaffold")) * sum(tensor.size for tensor in shared.values())
    federation = federated(experiment, corpus)
    before = federation.flat.copy()
    rows = list(federation.run())
    assert np.isfinite(rows[-1].metrics["loss"])
    assert np.array_equal(before, federation.flat) == (method == "local_only")


@pytest.mark.parametrize("method", ["fedavg", "pooled"])
def test_the_table_has_rows_for_words_alone(latest: Path, method: str) -> None:
    experiment = made(VECTORS, method)
    corpus = encoded(experiment, latest)
    words = len(corpus.vocabulary) - K
    shared, _ = initial(experiment, corpus)
    assert shared[TABLE].shape == (words - 1, 4), "all but <pad>"
    assert shared["head.0.weight"].shape == (5, 4 + K)
    assert sum(tensor.size for tensor in shared.values()) == 4 * (words - 1) + 5 * (4 + K) + 5 + 5 + 1
    federation = federated(experiment, corpus)
    before = federation.state[TABLE].copy()
    (record, *_) = federation.run()
    trainee = federation.trainees[0].id
    data = federation.fleet.worker.clients[trainee]  # type: ignore[attr-defined]
    assert data.rows_R.max() < words - 1
    moved = np.flatnonzero((federation.state[TABLE] != before).any(1))
    held = np.unique(np.concatenate([c.rows_R[: c.train_rows] for c in participants(experiment, corpus)])) - 1
    assert moved.tolist() == held[(held >= 0) & (held < words - 1)].tolist(), "every row that is sent is read"
    if method == "fedavg":
        sizes = [int((client.rows_R < words).sum()) - 1 for client in corpus.clients]
        shapes = {name: tensor.shape for name, tensor in shared.items()}
        expected = sum(encoding.encoded_size(shapes | {TABLE: (size, 4)}) for size in sizes)
        assert record.metrics["bytes_down"] == expected


def test_own_rows_and_all_give_the_same(latest: Path) -> None:
    ends = []
    for rows in ("own", "all"):
        experiment = made(VECTORS, wire={"rows": rows})
        federation = federated(experiment, encoded(experiment, latest))
        scores = [record.clients for record in federation.run()]
        ends.append((federation.flat.tobytes(), scores))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("missing", ["zero", "random"])
def test_words_start_from_a_file_and_features_need_no_vector(latest: Path, missing: str) -> None:
    experiment = made(VECTORS, data=latest, missing=missing)
    corpus = encoded(experiment, latest)
    shared, _ = initial(experiment, corpus)
    words = corpus.vocabulary[1 : len(corpus.vocabulary) - K]
    known = {"caf": [1, 2, 3, 4], "war": [-1, 0.5, 0, 2], "comedy": [0.5, 0.5, 0.5, -0.5]}
    assert set(known) < set(words)
    for word, row in nonempty(zip(words, shared[TABLE], strict=True)):
        if word in known:
            assert row.tolist() == known[word]
        else:
            assert row.any() == (missing == "random"), word


@pytest.mark.parametrize("method", ["fedavg", "pooled"])
@pytest.mark.parametrize("vectors", ["random", "zero"])
def test_a_turn_equals_a_step_of_a_plain_network_on_the_raw_corpus(latest: Path, vectors: str, method: str) -> None:
    """One client's texts and features as they were read, word by word and number by number, in one batch."""
    training = {"rounds": 1, "local_epochs": 1, "batch_size": 100, "optimizer": {"lr": 0.5, "momentum": 0.0}}
    experiment = made(
        VECTORS | {"output": "softmax"},
        method,
        data=None if vectors == "random" else latest,
        corpus={"clients": 1},
        training=training,
        evaluation={"personalize": None},
    )
    corpus = encoded(experiment, latest)
    federation = federated(experiment, corpus)
    start = {name: torch.tensor(value).double().requires_grad_() for name, value in federation.state.items()}
    raw = experiment.corpus.read(latest, experiment.seed).clients[0].train
    assert raw.features is not None
    place = {word: row - 1 for row, word in enumerate(corpus.vocabulary)}
    dense_NK = np.zeros((len(raw), K))
    shares_NV = np.zeros((len(raw), len(start[TABLE])))
    for number, text in enumerate(raw.texts):
        for column, value in zip(raw.features.columns_NK[number], raw.features.values_NK[number], strict=True):
            dense_NK[number, column] += value
        words = experiment.corpus.text.clean(text).split()
        for word in words:
            shares_NV[number, place[word]] += 1 / len(words)
    joined = torch.cat([torch.from_numpy(shares_NV) @ start[TABLE], torch.from_numpy(dense_NK)], 1)
    hidden = (joined @ start["head.0.weight"].T + start["head.0.bias"]).relu()
    logits_BC = hidden @ start["head.1.weight"].T + start["head.1.bias"]
    loss = cross_entropy(logits_BC, torch.from_numpy(raw.labels))
    loss.backward()
    (record,) = federation.run()
    assert record.metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, tensor in nonempty(start.items()):
        assert tensor.grad is not None
        assert tensor.grad.any(), name
        expected = (tensor - 0.5 * tensor.grad).detach().numpy()
        assert np.allclose(federation.state[name], expected, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("method", ["fedavg", "pooled"])
def test_what_only_features_tell_is_learnt(tmp_path: Path, method: str) -> None:
    """One of two users rates all films well, the other none: no word tells them apart. Vectors are kept small."""
    write_1m(tmp_path)
    model = VECTORS | {"embedding": {"dim": 4, "init": {"random": {"std": 0.01}}}, "hidden": []}
    losses = {}
    for features in (["gender"], []):
        experiment = made(
            model,
            method,
            corpus={"release": "ml-1m", "features": features},
            training=tiny.TRAINING | {"rounds": 30, "optimizer": {"name": "adam", "lr": 0.05, "embedding_lr": 0}},
            evaluation={"every": 30, "personalize": None},
        )
        rows = list(federated(experiment, encoded(experiment, tmp_path)).run())
        losses[len(features)] = rows[-1].metrics["loss"]
        assert not features or rows[-1].metrics["Ag"] == 1
    assert losses[1] < 0.05 < 0.3 < losses[0]


def test_texts_are_read_with_and_without_words(latest: Path) -> None:
    experiment = made(VECTORS, corpus={"side_text": False})
    corpus = encoded(experiment, latest)
    federation = federated(experiment, corpus)
    worker = federation.fleet.worker  # type: ignore[attr-defined]
    texts = texts_of(experiment, worker.clients[0], "train")
    assert texts.features_NK is not None
    assert texts.features_NK.shape == (len(texts), K)
    assert ((texts.lengths_N == 0) == texts.features_NK.any(1)).all()
    assert np.isfinite(list(federation.run())[-1].metrics["loss"])


def test_other_numbers_and_other_models_are_refused(latest: Path) -> None:
    corpus = encoded(made(VECTORS), latest)
    with pytest.raises(UserError, match="model bigru uses words alone, and corpus ml-latest-small has features"):
        participants(tiny.experiment(), corpus)
    valued = tiny.corpus()
    for client in valued.clients:
        object.__setattr__(client.train, "values_T", np.full(len(client.train.tokens_T), 0.5, np.float32))
    with pytest.raises(UserError, match="model vectors uses words alone, and corpus tiny has features"):
        participants(tiny.experiment(model=VECTORS), valued)
