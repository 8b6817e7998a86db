"""How many clients are trained side by side, and what is kept from round to round."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedtext.client.participants import stacks
from fedtext.client.worker import Worker
from fedtext.config.engine import stack_size
from fedtext.corpora.types import ClientData, Corpus
from fedtext.layout import Layout
from fedtext.ledger.assumptions import steps_in_c
from fedtext.methods import KTEPS
from fedtext.parameters import initial
from tests import tiny
from tests.loops import nonempty


@pytest.mark.parametrize(
    ("changes", "clients", "size", "why"),
    [
        ({}, 16, 1, "16 a round leave no more than 16 actors anything to do"),
        ({}, 100, 4, "stacks of 4: 100 clients a round"),
        ({}, 1000, 8, "stacks of 8"),
        ({"participation": {"fraction": 0.1}}, 1000, 4, "stacks of 4: 100 clients a round"),
        ({"training": {"stack": 5}}, 16, 5, "as configured"),
        ({"training": {"stack": 1}}, 1000, 1, "as configured"),
        ({"training": {"engine": "reference"}}, 1000, 1, "the reference engine has no stacks"),
        ({"method": "fedprox"}, 1000, 1, "method fedprox uses the whole embedding table"),
        ({"method": "pooled"}, 1000, 1, "one client trains"),
        ({"model": {"hidden": 300}}, 1000, 1, "with 300 hidden units each fills a core by itself"),
        ({"model": "bag"}, 1000, 1, "there are stacks of recurrent models, and bag is none"),
        ({"model": {"hidden": 16}, "training": {"engine": "native"}}, 200, 8, "stacks of 8"),
        ({"model": {"hidden": 16}, "training": {"engine": "native"}}, 1000, 32, "stacks of 32"),
        ({"model": {"hidden": 16}, "training": {"engine": "native"}}, 10_000, 32, "stacks of 32"),
        (
            {"model": {"hidden": 17}, "training": {"engine": "native"}},
            1000,
            1,
            "with engine native and 17 hidden units",
        ),
    ],
)
def test_auto_says_what_it_chose_and_why(changes: dict, clients: int, size: int, why: str) -> None:
    found, sentence = stack_size(tiny.configured(**({"method": "kteps"} | changes)), clients)
    assert found == size
    assert why in sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"training": {"stack": 2, "engine": "reference"}}, "the engine reference trains clients one by one"),
        ({"training": {"stack": 2}, "method": "fedprox"}, "method fedprox uses the whole embedding table"),
        ({"training": {"stack": 0}}, "greater than or equal to 1"),
    ],
)
def test_a_stack_that_cannot_be_is_refused(changes: dict, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        tiny.experiment(**({"method": "kteps"} | changes))


def test_stacks_are_blocks_of_ids_whoever_is_away() -> None:
    assert stacks([7, 0, 1, 5, 2], 3) == [[0, 1, 2], [5], [7]]
    assert stacks(range(4), 1) == [[0], [1], [2], [3]]


Setup = tuple[Corpus, np.ndarray, Callable[[], Worker]]


def kteps(clients: int, stack: int, engine: str = "auto", **optimizer: Any) -> Setup:
    """A corpus, the parameters its clients receive, and who makes a worker that hosts them all."""
    corpus, asked = tiny.corpus(clients), {"stack": stack, "engine": engine}
    training = tiny.TRAINING | asked | {"optimizer": tiny.TRAINING["optimizer"] | optimizer}
    experiment = tiny.experiment("kteps", training=training)
    shared, private = initial(experiment, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    return corpus, flat, lambda: Worker(experiment, corpus, corpus.clients, private)


@pytest.mark.parametrize("cell", ["bigru", "bilstm"])
@pytest.mark.parametrize("method", ["fedavg", "kteps"])
@pytest.mark.parametrize("optimizer", [{"name": "adam", "clip_norm": 0.5}, {"name": "adam"}, {"name": "sgd"}])
def test_engine_native_gives_the_same_bits_whoever_else_is_in_a_stack(method: str, cell: str, optimizer: dict) -> None:
    """The ledger says of such stacks that clients do not change the updates of others: no rounding may grow."""
    training = tiny.TRAINING | {"stack": 5, "engine": "native", "optimizer": optimizer | {"lr": 0.1}}
    model = {"name": cell, "embedding": {"dim": 7}, "hidden": 5, "head": {"hidden": 3}}
    experiment, corpus = tiny.experiment(method, training=training, model=model), tiny.corpus(5, texts=20)
    assert steps_in_c(experiment, 5)
    shared, private = initial(experiment, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)

    def payloads(members: list[int]) -> dict[int, bytes]:
        replies = Worker(experiment, corpus, corpus.clients, private).train(flat, 1, members)
        return {reply.client: reply.payload.tobytes() for reply in replies}

    together = payloads([0, 1, 2, 3, 4])
    for members in nonempty([[1, 2, 3, 4], [0, 1, 3, 4], [3]]):
        assert payloads(members) == {client: together[client] for client in members}


def test_a_worker_keeps_its_memory_and_networks_from_round_to_round() -> None:
    _, flat, host = kteps(clients=6, stack=3)
    worker = host()
    room = worker.workspaces

    def round_(number: int) -> list[object]:
        for members in nonempty(stacks(range(6), 3)):
            assert not any(nonempty(reply.error for reply in worker.train(flat, number, members)))
        worker.evaluate(flat, number, range(6), final=True)
        kept = [*room.workspace.buffers.values(), *room.stacks.values(), *room.optimizers.values()]
        return [*kept, *worker.texts.values(), worker.network]

    first, second = round_(1), round_(2)
    assert len(first) == len(second)
    assert all(nonempty(one is other for one, other in zip(first, second, strict=True)))
    assert len(room.stacks) == 2, "one for three clients side by side, one for reading them one by one"


def test_a_client_that_fails_at_its_uplink_leaves_the_others_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, flat, host = kteps(clients=3, stack=3, persist=True)
    expected, broken = host(), host()
    for client in (0, 1):
        expected.train(flat, 1, [client])
    original = broken.uplink.update

    def update(flat: np.ndarray, parameters: dict, round_: int, data: ClientData, *beside: Any) -> Any:
        if data.id == 2:
            raise OSError("no")
        return original(flat, parameters, round_, data, *beside)

    monkeypatch.setattr(broken.uplink, "update", update)
    assert [reply.error for reply in broken.train(flat, 1, [0, 1, 2])] == ["", "", "OSError: no"]
    assert broken.private_states([0, 1, 2]) == expected.private_states([0, 1, 2])


def test_a_loss_that_only_fails_in_a_stack_is_an_error_not_a_slower_run(monkeypatch: pytest.MonkeyPatch) -> None:
    _, flat, host = kteps(clients=2, stack=2, engine="cells")
    worker, original = host(), KTEPS.loss

    def loss(method: object, model: object, received: object, batch: object) -> dict:
        terms = original(method, model, received, batch)
        assert terms["ce_shared"].item() >= 0  # no number can be looked at while clients are mapped
        return terms

    monkeypatch.setattr(KTEPS, "loss", loss)
    for reply in nonempty(worker.train(flat, 1, [0, 1])):
        assert "only in a stack: set training.stack to 1" in reply.error
    assert worker.private_states([0, 1]) == {0: b"", 1: b""}


@pytest.mark.parametrize("clients", [1, 3])
def test_a_client_has_its_share_of_its_stacks_time_and_its_own(clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock goes on by 6 s, and the processor's by 3 s, whenever they are looked at: once while a stack is trained,
    and once while a client's update is sent."""
    _, flat, host = kteps(clients=clients, stack=clients)
    worker, looks = host(), itertools.count()
    monkeypatch.setattr(
        "fedtext.client.trainer.time", SimpleNamespace(perf_counter=lambda: 6.0 * next(looks), thread_time=lambda: 0.5)
    )
    for reply in nonempty(worker.train(flat, 1, range(clients))):
        assert reply.metrics["seconds"] == 6 / clients + 6
        assert reply.metrics["cpu_seconds"] == 0
        assert reply.bytes_up == reply.payload.nbytes > 0


def test_one_client_that_fails_does_not_take_its_stack_along() -> None:
    corpus, flat, host = kteps(clients=3, stack=3)
    worker = host()
    corpus.clients[1].train.labels_N[0] = 9
    replies = worker.train(flat, 1, [0, 1, 2])
    assert replies[1].error == "ValueError: the label of one of its texts is 9, and there are 2 classes, from 0 on"
    assert [bool(reply.error) for reply in replies] == [False, True, False]
    alone = host().train(flat, 1, [2])[0]
    assert np.array_equal(replies[2].payload, alone.payload)
