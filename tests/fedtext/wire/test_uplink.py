"""The noise that leaves clients: of every client, round, mechanism and tensor its own.

Clients learn so slowly here that nothing changes: what they send is their noise alone.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.layout import TABLE, Layout
from fedtext.mechanisms.base import Mechanism, Tensors
from fedtext.parameters import initial
from fedtext.server.method_state import MethodState
from fedtext.wire import encoding
from fedtext.wire.decoder import Decoder
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=3, texts=2, vocabulary=900)
MODEL = {"embedding": {"dim": 5}, "hidden": 4}
STILL = {"rounds": 2, "local_epochs": 1, "batch_size": 99, "optimizer": {"lr": 1e-30}}


def sent(
    uplink: list[Any], seed: int = 0, stack: int = 1, dtype: np.dtype = encoding.FLOAT32
) -> dict[tuple[int, int], dict[str, Any]]:
    """What each of three clients sends in each of two rounds, from the same parameters, by (client, round)."""
    experiment = tiny.experiment(uplink=uplink, model=MODEL, training=STILL | {"stack": stack}, seed=seed)
    shared, private = initial(experiment, CORPUS)
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    worker, flat, shapes = LocalFleet(experiment, CORPUS, private).worker, layout.pack(shared), layout.shapes
    for mechanism in experiment.uplink:
        shapes = dict(mechanism.leaves(shapes))
    found = {}
    for round_ in (1, 2):
        for reply in nonempty(worker.train(flat, round_, [0, 1, 2]) if stack > 1 else one_by_one(worker, flat, round_)):
            assert not reply.error
            found[reply.client, round_] = dict(encoding.decode(reply.payload, reply.client, shapes, dtype).tensors)
    return found


def one_by_one(worker: Any, flat: Any, round_: int) -> list[Any]:
    return [worker.train(flat, round_, [client])[0] for client in range(3)]


def unrelated(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two draws correlate no more than independent ones do (five standard errors of about 4500 numbers)."""
    return bool(abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / math.sqrt(one.size))


@pytest.mark.parametrize("stack", [1, 3])
def test_each_client_draws_noise_of_its_own_in_every_round(stack: int) -> None:
    noise = sent([{"gaussian": {"sigma": 0.5}}], stack=stack)
    tables = {key: tensors[TABLE] for key, tensors in noise.items()}
    assert len(tables) == 6
    for table in nonempty(tables.values()):
        assert abs(table.std() - 0.5) < 4 * 0.5 / math.sqrt(2 * table.size)
    for one, other in nonempty(itertools.combinations(tables.values(), 2)):
        assert unrelated(one, other)
    # three clients' mean has a third of the variance, which is what averaging is for
    mean = sum(tables[client, 1] for client in range(3)) / 3
    assert mean.var() == pytest.approx(0.25 / 3, rel=6 * math.sqrt(2 / mean.size))


def test_each_client_draws_bits_of_its_own_in_every_round() -> None:
    """An unchanged number is either bit with equal chance: two clients agree in half of them."""
    for uplink in (["quantize"], ["quantize", {"randomized_response": {"epsilon": 1.0}}]):
        tables = [tensors[TABLE] for tensors in sent(uplink, dtype=encoding.BITS).values()]
        for one, other in nonempty(itertools.combinations(tables, 2)):
            assert abs((one == other).mean() - 0.5) < 5 * 0.5 / math.sqrt(one.size)
            assert abs(one.mean() - 0.5) < 5 * 0.5 / math.sqrt(one.size)


@pytest.mark.parametrize("between", [[], [{"clip": {"norm": 1e9}}]])
def test_two_mechanisms_of_an_uplink_draw_independently(between: list[Any]) -> None:
    """The variances of independent draws add up: 0.3^2 + 0.4^2 = 0.5^2. Of the same draw the deviations would: 0.7."""
    noise = sent([{"gaussian": {"sigma": 0.3}}, *between, {"gaussian": {"sigma": 0.4}}])
    for tensors in nonempty(noise.values()):
        table = tensors[TABLE]
        assert abs(table.std() - 0.5) < 4 * 0.5 / math.sqrt(2 * table.size)


def test_the_tensors_of_an_update_have_noise_of_their_own() -> None:
    noise = sent([{"gaussian": {"sigma": 1.0}}])[0, 1]
    numbers = np.concatenate([tensor.ravel() for tensor in noise.values()])
    assert len(np.unique(numbers)) > 0.999 * len(numbers)
    for one, other in nonempty(itertools.combinations([tensor for tensor in noise.values() if tensor.size > 20], 2)):
        size = min(one.size, other.size)
        assert unrelated(one.ravel()[:size], other.ravel()[:size])


def test_noise_comes_again_with_its_seed_and_is_another_with_another() -> None:
    first, again, other = (sent(["gaussian"], seed)[0, 1][TABLE] for seed in (0, 0, 1))
    assert first.tobytes() == again.tobytes()
    assert unrelated(first, other)


def test_a_payload_says_how_many_train_texts_its_client_has() -> None:
    experiment = tiny.experiment(model=MODEL, training=STILL)
    shared, private = initial(experiment, CORPUS)
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    (reply,) = LocalFleet(experiment, CORPUS, private).worker.train(layout.pack(shared), 1, [0])
    samples = encoding.decode(reply.payload, 0, layout.shapes).samples
    assert samples == len(CORPUS.clients[0].train) > 0


@pytest.mark.parametrize(
    ("uplink", "values"),
    [
        ([], None),
        (["clip", {"quantize": {"q": 0.5}}], {-0.5, 0.5}),
        ([{"quantize": {"q": 0.5}}], {-0.5, 0.5}),
        ([{"quantize": {"q": 0.5}}, "randomized_response"], {-0.5 / math.tanh(0.5), 0.5 / math.tanh(0.5)}),
    ],
)
def test_the_server_reads_bits_where_the_last_mechanism_leaves_them(
    uplink: list[Any], values: set[float] | None
) -> None:
    experiment = tiny.experiment(uplink=uplink, model=MODEL, training=STILL)
    shared, private = initial(experiment, CORPUS)
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    flat = layout.pack(shared)
    (reply,) = LocalFleet(experiment, CORPUS, private).worker.train(flat, 1, [0])
    update = Decoder(experiment, layout).update(reply.payload, 0, flat, 1)
    assert (update.client, update.samples) == (0, len(CORPUS.clients[0].train))
    found = np.unique(np.concatenate([tensor.ravel() for tensor in update.tensors.values()]))
    if values is None:
        assert np.abs(found).max() < 1e-6
    else:
        assert found.tolist() == pytest.approx(sorted(values), rel=1e-5)


def test_a_client_that_sends_all_rows_sends_its_own_at_their_places_and_zeros_elsewhere() -> None:
    """The rows of the words in its train texts, as it sends them where it sends no others."""
    learning = STILL | {"optimizer": {"lr": 0.5}}
    updates = {}
    for rows in ("own", "all"):
        experiment = tiny.experiment(model=MODEL, training=learning, wire={"rows": rows})
        shared, private = initial(experiment, CORPUS)
        layout = Layout({name: tensor.shape for name, tensor in shared.items()})
        flat = layout.pack(shared)
        (reply,) = LocalFleet(experiment, CORPUS, private).worker.train(flat, 1, [0])
        updates[rows] = Decoder(experiment, layout).update(reply.payload, 0, flat, 1)
    own, whole = updates["own"], updates["all"]
    client = CORPUS.clients[0]
    assert own.rows is not None
    assert own.rows.tolist() == client.rows_R[: client.train_rows].tolist()
    assert whole.rows is None
    expected = np.zeros_like(whole.tensors[TABLE])
    expected[own.rows] = own.tensors[TABLE]
    assert np.array_equal(whole.tensors[TABLE], expected)
    assert (own.tensors[TABLE] != 0).any(1)[1:].all(), "every word of its texts has learned something"
    for name in nonempty(set(own.tensors) - {TABLE}):
        assert np.array_equal(own.tensors[name], whole.tensors[name])


class Absolute(Mechanism):
    """Sends parameters in the place of their changes."""

    name: str = "absolute"

    def apply(self, delta: Tensors, received: Mapping[str, Any], rng: np.random.Generator) -> Tensors:
        return {name: delta[name] + received[name] for name in delta}

    def restore(self, sent: Tensors, received: Mapping[str, Any]) -> Tensors:
        return {name: sent[name] - received[name] for name in sent}

    def metrics(self, delta: Tensors, received: Mapping[str, Any], sent: Tensors) -> dict[str, float]:
        return {"changed": np.abs(delta[TABLE]).max(), "received": np.abs(received[TABLE]).max()}


@pytest.mark.parametrize(("method", "rows"), [("fedavg", "own"), ("fedavg", "all"), ("scaffold", "all")])
def test_a_mechanism_has_what_the_client_received_of_all_that_it_sends_on_both_sides(method: str, rows: str) -> None:
    """Of what a method sends beside the update these are zeros."""
    training = STILL | {"optimizer": {"lr": 0.5}}
    plain = tiny.experiment(method, model=MODEL, training=training, wire={"rows": rows})
    updates = []
    for experiment in (plain, plain.model_copy(update={"uplink": (Absolute(),)})):
        shared, private = initial(experiment, CORPUS)
        layout = Layout({name: tensor.shape for name, tensor in shared.items()})
        flat = MethodState(experiment.method, shared, experiment.model.fixes).with_state(layout.pack(shared))
        (reply,) = LocalFleet(experiment, CORPUS, private).worker.train(flat, 1, [0])
        updates.append(Decoder(experiment, layout).update(reply.payload, 0, flat, 1))
    direct, restored = updates
    held = shared[TABLE] if direct.rows is None else shared[TABLE][direct.rows]
    assert reply.metrics["changed"] == np.abs(direct.tensors[TABLE]).max()
    assert reply.metrics["received"] == np.abs(held).max()
    assert (direct.rows is None) == (rows == "all")
    assert direct.tensors.keys() == restored.tensors.keys()
    assert any(name.startswith("delta_c/") for name in direct.tensors) == (method == "scaffold")
    for name, tensor in nonempty(direct.tensors.items()):
        assert tensor.any()
        assert np.allclose(tensor, restored.tensors[name], atol=1e-6), name
