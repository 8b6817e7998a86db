"""What clients train, against torch's own layers and optimizers, one client after the other; and what each one draws.

Legend: R rows a client holds, B texts of a batch.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.texts import order_of, texts_of
from fedtext.client.worker import Worker
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.layout import TABLE, Layout
from fedtext.methods.base import Model, Phase
from fedtext.parameters import build_network, initial
from fedtext.runtime.threads import one_torch_thread
from fedtext.training.batches import Assembler, Texts
from fedtext.wire import encoding
from tests import tiny
from tests.fedtext.training.test_optimizer import theirs
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=3)  # 12, 15 and 18 texts: in batches of 4 the last one of an epoch has 4, 3 and 2
ROUNDS, EPOCHS = 2, 2


def hosted(experiment: Experiment, corpus: Corpus = CORPUS) -> tuple[Worker, np.ndarray, Layout]:
    shared, private = initial(experiment, corpus)
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    return LocalFleet(experiment, corpus, private).worker, layout.pack(shared), layout


def batch_of(texts: Texts, chosen_B: np.ndarray) -> Any:
    """As the reference engine is given it."""
    return Assembler(None, False, torch.device("cpu")).single(texts, chosen_B)[0]


def by_torch(experiment: Experiment, flat: np.ndarray, layout: Layout, number: int) -> tuple[list[Any], list[float]]:
    """What one client's parameters change by in each round that begins with ``flat``, and its mean losses. Its
    optimizer goes on from round to round where it persists."""
    data, config = CORPUS.clients[number], experiment.training.optimizer
    texts = texts_of(experiment, data, "train")
    network = build_network(experiment, CORPUS.classes, len(CORPUS.clients))
    begin = {name: torch.tensor(view) for name, view in layout.views(flat).items()}
    begin[TABLE] = begin[TABLE][torch.from_numpy(data.rows_R)]
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in begin.items()}
    rule, changes, losses = theirs(config, leaves, {}), [], []
    for round_ in range(1, ROUNDS + 1):
        for name, leaf in leaves.items():
            leaf.data.copy_(begin[name])
        if not config.persist:
            rule.state.clear()
        batches, total = list(order_of(experiment, texts, Phase("joint", EPOCHS), round_, number)), 0.0
        for step, chosen_B in enumerate(batches):
            batch = batch_of(texts, chosen_B)
            rule.zero_grad()
            loss = cross_entropy(Model(network, leaves)(batch), batch.labels_B)
            loss.backward()
            rule.param_groups[0]["lr"] = config.lr * (1 - step / len(batches) if config.schedule == "linear" else 1)
            rule.step()
            total += loss.item() * len(chosen_B)
        changes.append({name: (leaf - begin[name]).detach().numpy() for name, leaf in leaves.items()})
        losses.append(total / (EPOCHS * len(texts)))
    return changes, losses


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "sgd, persisting": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "persist": True},
    "sgd, linear": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "schedule": "linear"},
    "adam": {"name": "adam", "lr": 0.02},
    "adam, persisting": {"name": "adam", "lr": 0.02, "persist": True},
    "adam, linear, persisting": {"name": "adam", "lr": 0.02, "schedule": "linear", "persist": True},
}


@pytest.mark.parametrize(("engine", "stack"), [("reference", 1), ("cells", 1), ("cells", 3)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_clients_of_unequal_sizes_train_as_torch_trains_each_alone(
    optimizer: dict[str, Any], engine: str, stack: int
) -> None:
    """Over two epochs, so that clients step on after a smaller batch, and two rounds, so that a state which persists
    has to come back to its own client."""
    training = {"local_epochs": EPOCHS, "batch_size": 4, "optimizer": optimizer, "engine": engine, "stack": stack}
    experiment = tiny.experiment(training=training | {"rounds": ROUNDS})
    worker, flat, layout = hosted(experiment)
    members = [[0, 1, 2]] if stack > 1 else [[0], [1], [2]]
    replies = [[reply for stacked in members for reply in worker.train(flat, r, stacked)] for r in (1, 2)]
    for client, data in nonempty(enumerate(CORPUS.clients)):
        with one_torch_thread():
            expected, losses = by_torch(experiment, flat, layout, client)
        for round_ in nonempty(range(ROUNDS)):
            reply = replies[round_][client]
            assert not reply.error
            assert reply.metrics["loss"] == pytest.approx(losses[round_], rel=1e-4)
            assert reply.metrics["samples"] == len(data.train)
            update = encoding.decode(reply.payload, client, layout.shapes)
            assert update.samples == len(data.train)
            for name, change in nonempty(expected[round_].items()):
                wanted = change[: data.train_rows] if name == TABLE else change
                np.testing.assert_allclose(update.tensors[name], wanted, rtol=1e-3, atol=2e-5, err_msg=name)


def test_dropout_strikes_out_others_in_every_round_and_every_client_of_a_stack() -> None:
    """Three clients with the same single text: without dropout all of them change alike in every round; with it no two
    turns do."""
    one = tiny.corpus(clients=1, texts=1).clients[0]
    corpus = tiny.corpus(clients=3, texts=1)
    for number in range(3):
        corpus.clients[number] = replace(one, id=number, name=f"client{number}")
    for dropout, distinct in ((0.0, 1), (0.5, 6)):
        for stack in (1, 3):
            experiment = tiny.experiment(
                model={"embedding": {"dim": 8}, "hidden": 16, "dropout": dropout},
                training={"rounds": 2, "local_epochs": 1, "stack": stack, "optimizer": {"lr": 0.5}},
            )
            worker, flat, layout = hosted(experiment, corpus)
            members = [[0, 1, 2]] if stack > 1 else [[0], [1], [2]]
            found = []
            for round_ in (1, 2):
                for reply in [reply for stacked in members for reply in worker.train(flat, round_, stacked)]:
                    update = encoding.decode(reply.payload, reply.client, layout.shapes)
                    found.append(layout.with_rows(one.train_rows).pack(dict(update.tensors)))
            same = [any(np.allclose(each, other, atol=1e-6) for other in found[:n]) for n, each in enumerate(found)]
            assert same.count(False) == distinct, (dropout, stack)


@pytest.mark.parametrize("texts", [40, 41])
def test_each_client_has_halves_of_its_own_which_stay_the_same(texts: int) -> None:
    """Support and query: disjoint, together everything, of each client drawn anew (two halves of 40 have 10 texts in
    common, +- 1.6), and in every round the same."""
    made = tiny.token_set(np.random.default_rng(0), texts, 1, 9)
    experiment, rows = tiny.experiment("fedrecon"), 9

    def half(which: Any, client: int, round_: int = 1) -> set[int]:
        batches = order_of(experiment, Texts(made, rows), Phase(which, 1, texts=which), round_, client)
        return {int(text) for batch in batches for text in batch}

    supports = [half("support", client) for client in range(30)]
    for client, support in enumerate(supports):
        query = half("query", client)
        assert len(support) == texts // 2
        assert not support & query
        assert support | query == set(range(texts))
        assert half("support", client, round_=7) == support
    shared = [len(one & other) for n, one in enumerate(supports) for other in supports[:n]]
    assert np.mean(shared) == pytest.approx((texts // 2) ** 2 / texts, abs=0.5)
    assert max(shared) < texts // 2
