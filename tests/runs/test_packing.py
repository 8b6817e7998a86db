"""Whoever hosts a client, its turns have the same bits: without Ray, for every method that trains clients."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedtext.client.participants import stacks
from fedtext.client.worker import Worker
from fedtext.config.server import ServerSGD
from fedtext.layout import Layout
from fedtext.methods import METHODS
from fedtext.parameters import initial
from fedtext.server.aggregation import Summation
from fedtext.server.method_state import MethodState
from fedtext.server.optimizers import step
from fedtext.testing.runs import Host, exchange
from fedtext.wire.decoder import Decoder
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=5, texts=2)
TOGETHER = [[0, 1, 2, 3, 4]]
BEFORE, AFTER = [[0, 1, 4], [2, 3]], [[2, 3, 4], [0, 1]]  # client 4 stays, all others change places
OPTIMIZERS = {"sgd": {"lr": 0.1, "momentum": 0.9}, "adam": {"lr": 0.01}}


def rounds(method: Any, optimizer: str, *hosted: Host) -> Iterator[tuple[dict[int, bytes], dict[int, bytes]]]:
    """Every client's payload and private state after each round, hosted as that round wants it."""
    name = method if isinstance(method, str) else method["name"]
    options: dict[str, Any] = {"name": optimizer, "persist": name != "fedrecon"} | OPTIMIZERS[optimizer]
    if METHODS[name].takes_sgd:
        options = OPTIMIZERS["sgd"]
    size = 1 if METHODS[name].reads_table else 2
    experiment = tiny.experiment(
        method,
        model={"name": "gru", "embedding": {"dim": 5}, "hidden": 4, "dropout": 0.2},
        training=tiny.TRAINING | {"local_epochs": 1, "optimizer": options, "stack": size},
    )
    shared, private = initial(experiment, CORPUS)
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    decoder, beside = Decoder(experiment, layout), MethodState(experiment.method, shared, experiment.model.fixes)
    state, summation = layout.pack(shared), Summation(experiment, decoder.sent, [len(c.train) for c in CORPUS.clients])
    everybody = CORPUS.clients
    workers = [
        Worker(experiment, CORPUS, [everybody[c] for c in members], private, corpus_clients=5) for members in hosted[0]
    ]
    for round_, now in nonempty(enumerate(hosted, 1)):
        exchange(workers, now, CORPUS)
        flat = beside.with_state(state)
        replies, states, total = [], {}, summation.empty()
        for worker, members in zip(workers, now, strict=True):
            replies += [reply for stack in stacks(members, size) for reply in worker.train(flat, round_, stack)]
            states |= worker.private_states(members)
        assert not any(nonempty(reply.error for reply in replies))
        yield {reply.client: reply.payload.tobytes() for reply in replies}, states
        for reply in replies:
            if reply.payload.size:
                total.add(decoder.update(reply.payload, reply.client, flat, round_))
        mean_N = total.mean()
        if mean_N is not None:
            state, _ = step(ServerSGD(), state, beside.step(mean_N, 1.0), {})


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.pooled])
def test_two_workers_that_exchange_clients_give_the_bits_of_one(method: str, optimizer: str) -> None:
    alone = list(rounds(method, optimizer, TOGETHER, TOGETHER))
    assert list(rounds(method, optimizer, BEFORE, AFTER)) == alone
    (first, before), (second, after) = alone
    stateless = method == "fedrecon"
    assert all(nonempty((before[client] == after[client] == b"") == stateless for client in TOGETHER[0]))
    assert stateless or all(nonempty(before[client] != after[client] for client in TOGETHER[0]))
    assert (first != second) == METHODS[method].shares


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_method_of_two_stages_too(optimizer: str) -> None:
    method = {"name": "lg_fedavg", "pretrain": 1}
    alone = list(rounds(method, optimizer, TOGETHER, TOGETHER))
    assert list(rounds(method, optimizer, BEFORE, AFTER)) == alone
    (shared, _), (head, _) = alone
    assert all(nonempty(len(head[client]) < len(shared[client]) for client in TOGETHER[0]))
