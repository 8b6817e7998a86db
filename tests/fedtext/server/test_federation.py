"""Federations: what is saved and released, and clients that fail."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import UserError
from fedtext.messages import Reply
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from fedtext.server.weighted_sum import WeightedSum
from fedtext.state.checkpoint import Checkpoints, history
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

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        for reply in super().train(handle, round_, cohort):
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


class Adding(LocalFleet):
    """A fleet that adds up the updates of all clients but the first, as an actor does."""

    federation: Federation

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        self.sum = self.federation.step.summation.empty()
        for reply in super().train(handle, round_, cohort):
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


def test_a_step_of_the_server_that_leaves_no_finite_parameters_is_one_sentence() -> None:
    with (
        pytest.raises(UserError, match=r"after round 1 are not finite.*: lower server.optimizer.lr.* your own, check"),
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
