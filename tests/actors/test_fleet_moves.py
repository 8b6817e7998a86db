"""Clients that move between actors, and actors that join or are started again."""

import os
import signal
from itertools import pairwise

import pytest
import ray

from actors import crew
from tests import tiny
from tests.actors.fleets import THREE, TWO, in_actors, local
from tests.actors.joining import Joining
from tests.loops import nonempty
from tests.outcomes import final, seen


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_very_many_clients_share_objects_and_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen clients in objects of three, in stacks of two: six that belong together move together."""
    monkeypatch.setattr("actors.shipment.OBJECTS", 6)
    experiment = tiny.experiment("kteps", training=THREE | {"stack": 2})
    federation = in_actors(experiment)
    fleet, rounds, homes = federation.fleet, [], []
    assert len(set(fleet.data.values())) == 6
    for record in nonempty(federation.run()):
        rounds.append(seen(record))
        for together in (range(6), range(6, 12), range(12, 16)):
            assert len({fleet.home[client] for client in together}) == 1
        homes.append([fleet.home[client] for client in (0, 6, 12)])
        fleet.seconds = {client: 1.0 if fleet.home[client] == fleet.home[0] else 0.1 for client in range(16)}
    assert (federation.flat.tobytes(), rounds, fleet.private_states()) == final(local(experiment))[:3]
    assert len(set(map(tuple, homes))) > 1, "the actor of the first ones was slow, and others have left it"
    fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_what_audits_and_evaluations_say_of_clients_that_move_is_of_where_they_are() -> None:
    """Both actors are told of all clients that are attacked, and each has seen those of its earlier rounds."""
    audits = [{"word_relations": {"words": ["w3", "w9", "w20"], "top": 4}}]
    experiment = tiny.experiment("kteps", audits=audits, training=THREE)
    federation = in_actors(experiment)
    fleet, rounds, homes = federation.fleet, [], []
    for record in nonempty(federation.run()):
        rounds.append(seen(record))
        homes.append(dict(fleet.home))
        slow = record.round % 2  # clients leave one actor, and then the other
        fleet.seconds = {client: 1.0 if place == slow else 0.1 for client, place in fleet.home.items()}
    assert [rounds] == [final(local(experiment))[1]]
    for before, after in nonempty(pairwise(homes)):
        assert sum(before[client] != after[client] for client in before) > 3
    fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_clients_move_to_an_actor_that_joins_before_all_have_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of them trains in a round. Those whose times are known move with the others."""
    monkeypatch.setattr("actors.moves.MOVE_SECONDS", 0.0)
    joining = Joining(monkeypatch)
    experiment = tiny.experiment("scaffold", training=THREE, participation={"fraction": 0.25})
    federation = in_actors(experiment)
    fleet, rounds, homes = federation.fleet, [], []
    for record in nonempty(federation.run()):
        rounds.append(seen(record))
        homes.append([list(fleet.home.values()).count(place) for place in (0, 1)])
        joining.now = True
    assert len(fleet.seconds) < 16
    assert (federation.flat.tobytes(), rounds, fleet.private_states()) == final(local(experiment))[:3]
    assert homes[0] == [16, 0]
    for hosted in nonempty(homes[1:]):
        assert min(hosted) > 0
    fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_only_the_actor_that_was_lost_is_started_again() -> None:
    """One is killed and one is sound; then one is stopped, as a process that hangs."""
    first, second = actors = crew.hire(TWO, None)
    (pid,) = ray.get([second.__ray_call__.remote(lambda self: os.getpid())])
    ray.kill(first)
    crew.salvage(actors, TWO, None)
    replaced, kept = crew.hire(TWO, None)
    assert kept is second
    assert replaced is not first
    ray.get(replaced.__ray_ready__.remote())
    os.kill(pid, signal.SIGSTOP)
    crew.salvage([replaced, kept], TWO, None)
    again = crew.hire(TWO, None)
    assert again[0] is replaced
    pids = ray.get([actor.__ray_call__.remote(lambda self: os.getpid()) for actor in again])
    assert pid not in pids
    crew.keep(again, TWO, None)
