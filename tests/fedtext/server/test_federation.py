"""Federations: what is saved and released, clients that fail, and payloads that cannot be used."""

import re
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load, save

from actors.client import ClientActor
from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import ClientError, UserError
from fedtext.layout import Layout
from fedtext.messages import Reply, Update
from fedtext.parameters import initial
from fedtext.server.aggregation import Summation, WeightedSum
from fedtext.server.federation import Federation
from fedtext.state.checkpoint import Checkpoints, history
from fedtext.wire.decoder import Decoder
from tests import tiny
from tests.loops import nonempty


@pytest.mark.parametrize(("rounds", "every", "saved"), [(5, 2, [2, 4, 5]), (3, 5, [3]), (4, 2, [2, 4]), (2, 1, [1, 2])])
def test_state_is_saved_every_so_often_and_after_the_last_round(
    rounds: int, every: int, saved: list[int], tmp_path: Path
) -> None:
    corpus = tiny.corpus(clients=2, texts=2)
    experiment = tiny.experiment(
        training=tiny.TRAINING | {"rounds": rounds}, checkpoint={"every": every}, evaluation={"personalize": None}
    )
    shared, private = initial(experiment, corpus)
    checkpoints = Checkpoints(tmp_path, "one")
    federation = Federation(experiment, shared, LocalFleet(experiment, corpus, private), checkpoints)
    found = set()
    for record in nonempty(federation.run()):
        snapshot = checkpoints.load()
        if snapshot is not None:
            found.add(snapshot.round)
        if record.round in saved:
            assert snapshot is not None
            assert snapshot.flat.tobytes() == federation.flat.tobytes()
    assert sorted(found) == saved
    last = checkpoints.load()
    assert last is not None
    assert len(last.history) == rounds
    again = Federation(experiment, shared, LocalFleet(experiment, corpus, private), checkpoints)
    assert list(again.run()) == [], "nothing is left to do"
    assert again.flat.tobytes() == federation.flat.tobytes()


@pytest.mark.parametrize("every", [1, 3])
def test_metrics_of_clients_are_on_disk_and_not_in_memory(every: int, tmp_path: Path) -> None:
    rounds: dict[str, Any] = {"training": tiny.TRAINING | {"rounds": 10}, "checkpoint": {"every": every}}
    experiment = tiny.experiment(evaluation={"personalize": None}, **rounds)
    federation = tiny.federation(experiment, tiny.corpus(clients=2, texts=2), folder=tmp_path)
    given = [record for record in federation.run() if record.clients]
    assert len(given) == 10
    kept = [record.round for record in federation.history if record.clients]
    assert kept == {1: [10], 3: [10]}[every], "those that one checkpoint alone has"
    assert history(tmp_path) == given
    assert [replace(one, clients={}) for one in given[:9]] == federation.history[:9]


class Unlucky(LocalFleet):
    """One in which client 1 fails in every round."""

    def train(self, handle: Any, round_: int, cohort: Sequence[int], attempt: int = 1) -> Iterator[Reply]:
        for reply in super().train(handle, round_, cohort, attempt):
            if reply.client == 1:
                yield Reply(1, error="OSError: no")
            else:
                self.bytes_up = getattr(self, "bytes_up", 0) + reply.bytes_up
                yield reply


def test_a_client_that_failed_has_not_trained() -> None:
    """Of four clients three count: in the number of trained clients, and as those whom the bytes are divided by."""
    corpus = tiny.corpus(clients=4, texts=2)
    experiment = tiny.experiment(
        participation={"on_client_error": "skip"},
        training=tiny.TRAINING | {"rounds": 1},
        evaluation={"personalize": None},
    )
    federation = tiny.federation(experiment, corpus, Unlucky)
    fleet = federation.fleet
    (record,) = federation.run()
    metrics = record.metrics
    assert metrics["clients_trained"] == 3
    assert metrics["clients_failed"] == 1
    assert metrics["bytes_up"] == fleet.bytes_up
    assert metrics["bytes_per_client"] == (metrics["bytes_up"] + metrics["bytes_down"]) / 3


CORPUS = tiny.corpus(clients=3, texts=2)


def damaged(payload: NDArray[np.uint8], how: str) -> NDArray[np.uint8]:
    """The payload cut off, with a sample count that is none, or with one number in its last tensor replaced."""
    content = load(payload.tobytes())
    if how == "cut":
        return payload[:-1]
    if how == "count":
        content["#samples"] = np.zeros(0, np.int64)
    elif how == "more":
        content["#samples"] = content["#samples"] + 1000
    else:
        name = max(name for name in content if not name.startswith("#"))
        content[name] = content[name].copy()
        content[name].reshape(-1)[-1] = float(how)
    return np.frombuffer(save(content), np.uint8)


class Faulty(LocalFleet):
    """A fleet whose client 1 sends something else than it should in the second round, or says that it failed."""

    how = "nan"

    def train(self, handle: Any, round_: int, cohort: Sequence[int], attempt: int = 1) -> Iterator[Reply]:
        for reply in super().train(handle, round_, cohort, attempt):
            if reply.client == 1 and round_ == 2:
                reply = (
                    Reply(1, error="away")
                    if self.how == "fails"
                    else replace(reply, payload=damaged(reply.payload, self.how))
                )
            yield reply


def faulty(how: str, method: str, on_client_error: str) -> Federation:
    experiment = tiny.experiment(method, participation={"on_client_error": on_client_error})
    federation = tiny.federation(experiment, CORPUS, Faulty)
    fleet = federation.fleet
    fleet.how = how
    return federation


SENT = {
    "nan": r"it sent \S+ with numbers that are not finite",
    "-inf": r"it sent \S+ with numbers that are not finite",
    "cut": "it sent no readable payload",
    "count": "it sent a sample count that is none",
    "more": r"it says that it has 10\d\d train texts, and has \d+",
}
TOO_LARGE = {"1e9": r"it changed \S+ by 1e\+09 in one round, too much for an exact sum"}
SUMMED = [("fedavg", how) for how in SENT | TOO_LARGE] + [("fedatt", how) for how in SENT]


@pytest.mark.parametrize(("method", "how"), SUMMED)
def test_a_payload_that_cannot_be_used_is_a_failure_of_its_client(how: str, method: str) -> None:
    with pytest.raises(ClientError, match=f"client client1 failed in round 2: {(SENT | TOO_LARGE)[how]}"):
        list(faulty(how, method, "fail").run())
    skipped, away = faulty(how, method, "skip"), faulty("fails", method, "skip")
    record, expected = list(skipped.run())[-1], list(away.run())[-1]
    assert skipped.flat.tobytes() == away.flat.tobytes()
    for metric in ("loss", "bytes_up", "clients_failed"):
        assert record.metrics[metric] == expected.metrics[metric]


class Enlarging(LocalFleet):
    """A fleet whose first client sends ``size`` in every place."""

    size = 3e38

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        made = self.worker.uplink.update

        def update(flat: Any, parameters: Any, round_: int, data: Any, extras: Any = None) -> Any:
            sent, said = made(flat, parameters, round_, data, extras)
            for tensor in nonempty(sent.tensors.values()) if data.id == 0 else ():
                tensor[...] = self.size
            return sent, said

        self.worker.uplink.update = update  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "aggregation",
    ["attention", "geometric_median", "median", {"trimmed_mean": {"share": 0.4}}, {"norm_bounded": {"norm": 1.0}}],
)
@pytest.mark.parametrize("uplink", [[], [{"project": {"d1": 1, "d2": 4}}]], ids=["sent", "restored"])
def test_huge_numbers_are_a_failure_of_their_client_whatever_the_aggregation(aggregation: Any, uplink: Any) -> None:
    """Products of finite numbers, as the server restores them, can be infinite."""
    made = tiny.experiment(
        uplink=uplink, server={"aggregation": aggregation}, participation={"on_client_error": "skip"}
    )
    federation = tiny.federation(made, CORPUS, Enlarging)
    for record in nonempty(federation.run()):
        assert record.metrics["clients_failed"] == 1
        assert np.isfinite(record.metrics["loss"])
    assert np.isfinite(federation.flat).all()


@pytest.mark.parametrize("how", SENT | TOO_LARGE)
def test_an_actor_that_adds_up_refuses_the_same_payloads(how: str) -> None:
    experiment = tiny.experiment()
    shared, private = initial(experiment, CORPUS)
    fleet = LocalFleet(experiment, CORPUS, private)
    actor = ClientActor.__ray_metadata__.modified_class()
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    actor.worker, actor.sum = fleet.worker, None
    actor.decoder = Decoder(experiment, layout)
    actor.summation = Summation(experiment, layout, [client.samples for client in fleet.clients])
    flat = layout.pack(shared)
    good, bad = fleet.worker.train(flat, 1, [0, 1])
    assert not actor._folded(good, flat, 1).error
    alone = actor.partial(1)
    actor._folded(good, flat, 1)
    refused = actor._folded(replace(bad, payload=damaged(bad.payload, how)), flat, 1)
    assert re.match((SENT | TOO_LARGE)[how], refused.error)
    assert actor.partial(1).sum_N.tobytes() == alone.sum_N.tobytes()


class Adding(LocalFleet):
    """A fleet that adds up the updates of all clients but the first, as an actor does."""

    federation: Federation

    def train(self, handle: Any, round_: int, cohort: Sequence[int], attempt: int = 1) -> Iterator[Reply]:
        self.sum = self.federation.step.summation.empty()
        for reply in super().train(handle, round_, cohort, attempt):
            if reply.client:
                self.sum.add(self.federation.decoder.update(reply.payload, reply.client, handle, round_))
                reply = replace(reply, payload=reply.payload[:0])
            yield reply

    def partials(self, round_: int) -> Iterator[WeightedSum]:
        yield self.sum


def test_updates_that_were_added_up_elsewhere_count_as_if_they_had_been_sent() -> None:
    experiment = tiny.experiment()
    federation = tiny.federation(experiment, CORPUS, Adding)
    fleet = federation.fleet
    fleet.federation = federation
    list(fleet.federation.run())
    assert fleet.federation.flat.tobytes() == tiny.Finished("fedavg", CORPUS).flat.tobytes()


class Releasing(LocalFleet):
    """A fleet that looks at each broadcast whether the one before it is still in memory."""

    sent: weakref.ref[NDArray[np.float32]] | None = None
    held: list[bool]

    def broadcast(self, flat: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.sent:
            self.held.append(self.sent() is not None)
        copied = flat.copy()
        self.sent = weakref.ref(copied)
        return copied


def test_a_broadcast_is_freed_before_the_next_one_takes_memory() -> None:
    experiment = tiny.experiment()
    federation = tiny.federation(experiment, CORPUS, Releasing)
    fleet = federation.fleet
    fleet.held = []
    list(federation.run())
    assert fleet.held == [False, False]


def test_a_sum_takes_no_number_that_is_none() -> None:
    layout = Layout({"b": (3,)})
    for bad in (np.nan, np.inf, -np.inf):
        total = WeightedSum(layout, 4, uniform=False, holders_only=False)
        with pytest.raises(UserError, match=r"client 7 changed a parameter by (nan|inf) in one round"):
            total.add(Update(7, 4, {"b": np.array([0, bad, 1], np.float32)}))


def test_a_step_of_the_server_that_leaves_no_finite_parameters_is_one_sentence() -> None:
    with (
        pytest.raises(UserError, match=r"after round 1 are not finite.*: lower server.optimizer.lr"),
        np.errstate(over="ignore"),
    ):
        tiny.Finished("fedavg", server={"optimizer": {"lr": 1e42}})


class Asked(LocalFleet):
    """One that keeps of which clients private states were asked for."""

    asked: list[Sequence[int] | None]

    def private_states(self, clients: Sequence[int] | None = None) -> dict[int, bytes]:
        self.asked = [*getattr(self, "asked", []), clients]
        return super().private_states(clients)


@pytest.mark.parametrize("every", [1, 2])
def test_the_states_of_clients_that_trained_are_asked_for_and_the_others_are_kept(every: int, tmp_path: Path) -> None:
    corpus = tiny.corpus(clients=8, texts=2)
    experiment = tiny.experiment(
        "kteps",
        training=tiny.TRAINING | {"rounds": 12},
        participation={"fraction": 0.25},
        checkpoint={"every": every},
        evaluation={"personalize": None},
    )
    federation = tiny.federation(experiment, corpus, Asked, tmp_path)
    for _ in nonempty(federation.run()):
        snapshot = Checkpoints(tmp_path, federation.checkpoints.fingerprint).load()
        if snapshot is not None and snapshot.round == len(federation.history):
            assert snapshot.clients == federation.fleet.worker.private_states()
    asked = federation.fleet.asked
    assert asked[:2] == [None, None]
    cohorts = [set(federation._took_part(round_)) for round_ in range(1, 13)]
    trained = [set().union(*cohorts[n : n + every]) for n in range(0, 12, every)]
    assert [set(clients) for clients in asked[2:]] == [one | other for one, other in pairwise(trained[1:])]
