"""FedeVocab and FedRecon: turns in phases."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData, Corpus
from fedtext.layout import TABLE
from fedtext.methods import FedAvg, FedeVocab, FedRecon
from fedtext.methods.base import Phase
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from fedtext.text.tokens import UNK_ID
from fedtext.training.batches import part
from fedtext.wire import encoding
from tests import tiny
from tests.fedtext.methods.objectives import plain
from tests.loops import nonempty

LR, ROUNDS, EPOCHS = 0.3, 2, 2
BAG = {"name": "bag", "embedding": {"dim": 5}, "hidden": ()}


def digits_of(corpus: Corpus, client: ClientData) -> np.ndarray:
    assert corpus.digits_V is not None
    return corpus.digits_V[client.rows_R]


CORPUS = tiny.TWO


def federated(experiment: Experiment, corpus: Corpus) -> Federation:
    return tiny.federation(experiment, corpus)


def descend(p: dict[str, Tensor], client: ClientData, texts_N: np.ndarray, epochs: int, moves: Callable) -> dict:
    """Full-batch gradient descent of what ``moves``: a mask for each parameter."""
    texts = client.train
    x_NV = torch.zeros(len(texts), len(CORPUS.vocabulary), dtype=torch.float64)
    x_NV[np.repeat(np.arange(len(texts)), np.diff(texts.offsets)), client.rows_R[texts.tokens_T]] = 1
    for _ in range(epochs):
        p = {name: tensor.detach().requires_grad_() for name, tensor in p.items()}
        loss = plain(p, {}, x_NV[texts_N][:, 1:], torch.from_numpy(texts.labels_N)[texts_N], 0)
        grads = torch.autograd.grad(loss, list(p.values()))
        p = {n: p[n] - LR * grad * moves(n) for n, grad in zip(p, grads, strict=True)}
    return {name: tensor.detach() for name, tensor in p.items()}


def run_of(options: Any, model: Any = BAG, **training: Any) -> Federation:
    base = {"rounds": ROUNDS, "local_epochs": EPOCHS, "batch_size": 99, "optimizer": {"lr": LR, "momentum": 0}}
    made = tiny.experiment(options, model=model, training=base | training, evaluation={"personalize": None})
    federation = federated(made, CORPUS)
    list(federation.run())
    return federation


def means(ends: Sequence[Mapping[str, Tensor]], names: Any) -> dict[str, Tensor]:
    sizes = [len(client.train) for client in CORPUS.clients]
    return {n: sum(k / sum(sizes) * end[n] for k, end in zip(sizes, ends, strict=True)) for n in names}


@pytest.mark.parametrize("adaptation", [0, 1, 3])
def test_fedevocab_by_hand(adaptation: int) -> None:
    options = {"adaptive": adaptation > 0} | ({"adaptation_epochs": adaptation} if adaptation else {})
    made = run_of({"name": "fedevocab", **options})
    shared, private = (
        {name: torch.from_numpy(tensor).double() for name, tensor in parts.items()}
        for parts in initial(made.experiment, CORPUS)
    )
    assert set(private) == {TABLE}
    private[TABLE][UNK_ID - 1] = 0  # what is unknown to a client says nothing at first
    own = [private, private]
    for _ in range(ROUNDS):
        ends = []
        for client, kept in zip(CORPUS.clients, own, strict=True):
            everything = np.arange(len(client.train))
            adapted = descend(shared | kept, client, everything, adaptation, lambda name: float(name == TABLE))
            ends.append(descend(adapted, client, everything, EPOCHS, lambda name: 1.0))
        shared, own = means(ends, shared), [{TABLE: end[TABLE]} for end in ends]
    for name, value in nonempty(made.state.items()):
        assert np.allclose(value, shared[name], atol=2e-6), name
    for client, kept in nonempty(zip(CORPUS.clients, own, strict=True)):
        table = made.fleet.worker.private[client.id][TABLE]  # type: ignore[attr-defined]
        assert np.allclose(table, kept[TABLE][client.rows_R[1:] - 1], atol=2e-6)


@pytest.mark.parametrize(("joint", "lr"), [(False, 1.0), (True, 1.0), (False, 0.5)])
def test_fedrecon_by_hand(joint: bool, lr: float) -> None:
    made = run_of({"name": "fedrecon", "joint": joint, "reconstruction_epochs": 2, "reconstruction_lr": lr})
    first, private = initial(made.experiment, CORPUS)
    assert not private
    state = {name: torch.from_numpy(tensor).double() for name, tensor in first.items()}
    digits_V1 = torch.from_numpy((np.arange(1, len(CORPUS.vocabulary)) % 3 == 0)[:, None]).double()
    own = lambda name: lr * digits_V1 if name == TABLE else 0.0  # noqa: E731
    rest = lambda name: 1 - digits_V1 if name == TABLE and not joint else 1.0  # noqa: E731
    for _ in nonempty(range(ROUNDS)):
        ends = []
        for client in nonempty(CORPUS.clients):
            halves = [part(len(client.train), which, 0, client.id) for which in ("support", "query")]
            assert sorted(np.concatenate(halves)) == list(range(len(client.train)))
            assert abs(len(halves[0]) - len(halves[1])) <= 1
            rebuilt = descend(state, client, halves[0], 2, own)
            end = descend(rebuilt, client, halves[1], EPOCHS, rest)
            end[TABLE] = torch.where(digits_V1 > 0, state[TABLE], end[TABLE])  # these rows are not sent
            ends.append(end)
        state = means(ends, state)
    for name, value in nonempty(made.state.items()):
        assert np.allclose(value, state[name], atol=2e-6), name
    digits = np.flatnonzero(digits_V1.numpy())
    assert np.array_equal(made.state[TABLE][digits], first[TABLE][digits]), "nobody ever sent them"
    assert not made.fleet.worker.private[0], "nothing is kept"  # type: ignore[attr-defined]


def test_fedrecon_is_read_with_rows_made_from_all_train_texts() -> None:
    made = run_of({"name": "fedrecon", "reconstruction_epochs": 3})
    client = CORPUS.clients[0]
    state = {name: torch.from_numpy(tensor.copy()).double() for name, tensor in made.state.items()}
    digits_V1 = torch.from_numpy((np.arange(1, len(CORPUS.vocabulary)) % 3 == 0)[:, None]).double()
    rebuilt = descend(state, client, np.arange(len(client.train)), 3, lambda n: digits_V1 if n == TABLE else 0.0)
    stack = made.fleet.worker.stack(made.flat, [0])  # type: ignore[attr-defined]
    worker = made.fleet.worker  # type: ignore[attr-defined]
    for phase in worker.method.before_evaluation():
        worker.run(phase, stack, made.flat, [0], 9)
    assert np.allclose(stack.tensors(0)[TABLE], rebuilt[TABLE][client.rows_R[1:] - 1], atol=2e-6)
    assert np.array_equal(stack.tensors(0)["head.0.weight"], made.state["head.0.weight"])


def test_rows_that_fedrecon_keeps_are_neither_sent_nor_asked_for() -> None:
    made, plain_one = (tiny.Finished(method, CORPUS, model=BAG) for method in ("fedrecon", "fedavg"))
    down, up = 0, 0
    for client in nonempty(CORPUS.clients):
        for count, held in (("down", len(client.rows_R)), ("up", client.train_rows)):
            rows = int((~digits_of(CORPUS, client)[1:held]).sum())  # without <pad>
            size = encoding.encoded_size(made.layout.with_rows(rows).shapes)
            down, up = down + size * (count == "down"), up + size * (count == "up")
    metrics = made.rows[0].metrics
    assert metrics["bytes_down"] == down
    assert up <= metrics["bytes_up"] < plain_one.rows[0].metrics["bytes_up"]


@pytest.mark.parametrize(
    "changes",
    [
        {"uplink": [{"gaussian": {"sigma": 0.1}}]},
        {"uplink": [{"quantize": {"q": 0.1}}, {"randomized_response": {"epsilon": 1.0}}]},
        {"uplink": [{"clip": {"norm": 1.0}}], "server": {"noise": {"multiplier": 1.0}, "weights": "uniform"}},
    ],
    ids=["gaussian", "bits", "central"],
)
def test_no_noise_moves_rows_that_nobody_sends(changes: dict[str, Any]) -> None:
    made = tiny.Finished("fedrecon", CORPUS, model=BAG, evaluation={"personalize": None}, **changes)
    before, after = (made.layout.views(flat)[TABLE] for flat in (made.before, made.flat))
    kept = np.arange(1, len(CORPUS.vocabulary)) % 3 == 0
    assert np.array_equal(before[kept], after[kept])
    assert (before[~kept] != after[~kept]).any(1).all()


class AdaptsAlone(FedeVocab):
    def phases(self, epochs: int) -> Sequence[Phase]:
        return super().phases(epochs)[:1]


class RebuildsAlone(FedRecon):
    def phases(self, epochs: int) -> Sequence[Phase]:
        return super().phases(epochs)[:1]


OPTIMIZERS = [{"name": "sgd", "lr": 0.1, "momentum": 0.9}, {"name": "adam", "lr": 0.1}]


@pytest.mark.parametrize(
    ("method", "optimizer", "engine"),
    list(product((AdaptsAlone(), RebuildsAlone()), OPTIMIZERS, ("reference", "cells"))),
)
def test_what_stands_still_in_a_phase_keeps_its_bits(method: FedAvg, optimizer: dict[str, Any], engine: str) -> None:
    training = tiny.TRAINING | {"optimizer": optimizer, "engine": engine, "stack": 1}
    made = tiny.Finished(method, CORPUS, training=training, evaluation={"personalize": None})
    assert np.array_equal(made.flat, made.before)
    stack = made.worker.stack(made.flat, [0])
    table = stack.tensors(0)[TABLE].clone()
    made.worker.run(method.phases(1)[0], stack, made.flat, [0], 3)
    moved_R = (stack.tensors(0)[TABLE] != table).any(1).numpy()
    data = CORPUS.clients[0]
    trained_R = np.arange(len(data.rows_R)) < data.train_rows
    trained_R[0] = False  # <pad>
    digits_R = digits_of(CORPUS, data)
    if isinstance(method, FedRecon):
        assert not moved_R[~digits_R].any()
        assert moved_R[digits_R & trained_R].any()
    else:
        assert moved_R[trained_R].any()


@pytest.mark.parametrize("method", ["fedevocab", "fedrecon"])
def test_engines_and_stacks_agree(method: str) -> None:
    def run(**how: Any) -> np.ndarray:
        return run_of(method, model={"embedding": {"dim": 5}, "hidden": 4, "head": {"hidden": 3}}, **how).flat

    expected = run(engine="reference", batch_size=4)
    for stack in (1, 2):
        assert np.allclose(run(engine="cells", stack=stack, batch_size=4), expected, atol=1e-6)


def test_without_private_parts_fedevocab_is_fedavg() -> None:
    class Shares(FedeVocab):
        own_vocabularies = False

        def private(self, parameter: str) -> bool:
            return False

    made = tiny.Finished(Shares(adaptive=False))
    assert np.array_equal(made.flat, tiny.Finished("fedavg").flat)
