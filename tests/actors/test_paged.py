"""A corpus on disk in actors: the numbers of one process with the corpus in memory, also after a restart."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError

from actors import crew, moves
from actors.cluster import connect
from actors.fleet import RayFleet
from actors.placement import Dealt, Plan, homes
from actors.shipment import ship
from fedtext.config.experiment import Experiment
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.server.federation import Federation
from fedtext.server.start import start
from tests import tiny
from tests.actors.joining import Joining
from tests.outcomes import final

PLAN = Plan(2, 1, 0, 1)
FORUM: dict[str, Any] = {"name": "forum", "clients": 24, "median": 6, "lexicon_size": 60}


@pytest.fixture
def started(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path_factory.mktemp("cache")))
    connect(None, num_cpus=2, num_gpus=0)
    yield
    crew.end(crew.hire(PLAN, None))
    ray.shutdown()


def experiment_on(storage: str) -> tuple[Experiment, Corpus]:
    """An experiment whose clients keep a state, and its corpus in memory or on disk."""
    content = {
        "name": "paged",
        "corpus": FORUM | {"storage": storage},
        "model": {"name": "gru_lm", "embedding": {"dim": 6}, "hidden": 6},
        "method": "scaffold",
        "training": {"rounds": 4, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
        "participation": {"fraction": 0.25},
        "evaluation": {"clients": 5, "personalize": None},
    }
    experiment = Experiment.model_validate(content)
    return experiment, prepare(experiment.corpus, experiment.model.embedding, experiment.seed, None)


def in_actors(folder: Path) -> Federation[RayFleet]:
    experiment, corpus = experiment_on("disk")
    shipment = ship(experiment, corpus)
    assert not shipment.clients, "nobody has the texts of all clients"
    return start(experiment, corpus, partial(RayFleet, experiment, shipment, plan=PLAN), folder)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_actors_read_clients_from_disk_and_give_the_same_bits(tmp_path: Path) -> None:
    expected = final(tiny.federation(*experiment_on("memory")))
    first = in_actors(tmp_path)
    run = first.run()
    next(run), next(run)
    first.fleet.close(keep=True)
    second = in_actors(tmp_path)
    assert len(second.history) == 2
    flat, rounds, states, parts = final(second)
    assert (flat, rounds, states, parts) == (expected[0], expected[1][2:], *expected[2:])
    assert states, "the method keeps a state of clients"
    second.fleet.close(keep=True)
    check_a_node_without_the_texts(tmp_path)


def check_a_node_without_the_texts(folder: Path) -> None:
    """It is told in the library's sentence, and not in Ray's, which it writes where an argument cannot be loaded."""
    experiment, corpus = experiment_on("disk")
    shipment = ship(experiment, corpus)
    texts: Path = corpus.clients.folder  # type: ignore[attr-defined]
    texts.rename(folder / "elsewhere")
    with pytest.raises(
        UserError, match=r"^corpus.storage: \S+ has no encoded texts on this machine: set .FEDTEXT_CACHE"
    ):
        start(experiment, corpus, partial(RayFleet, experiment, shipment, plan=PLAN), folder / "other")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_an_actor_that_joins_gets_its_clients_with_their_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One state at a time, from memory and from files. The first that joins is lost on the way: the checkpoint has all
    that was in its hands."""
    expected = final(tiny.federation(*experiment_on("memory")))
    monkeypatch.setattr(moves, "AT_ONCE", 1)
    joining, move = Joining(monkeypatch), moves.move
    first = in_actors(tmp_path)
    run, fleet = first.run(), first.fleet
    ray.get(fleet.actors[0].__ray_call__.remote(lambda self: setattr(self.worker.private, "most", 1)))
    next(run), next(run)

    def lost(get: moves.Get, actors: list[Any], *others: Any) -> None:
        ray.kill(actors[1])
        with suppress(RayActorError):  # it may answer a few times more
            while True:
                ray.get(actors[1].__ray_ready__.remote())
        move(get, actors, *others)

    try:
        with monkeypatch.context() as then:
            then.setattr(moves, "move", lost)
            joining.now = True
            with pytest.raises(crew.LOST):
                next(run)
    finally:
        fleet.salvage()
    second = in_actors(tmp_path)
    fleet = second.fleet
    try:
        assert (len(second.history), len(fleet.actors)) == (2, 1)
        flat, rounds, states, parts = final(second)
        assert (flat, rounds, states, parts) == (expected[0], expected[1][2:], *expected[2:])
        hosted = [list(there) for there in ray.get([actor.private_states.remote(None) for actor in fleet.actors])]
        assert hosted == [[client for client in states if client % 2 == place] for place in (0, 1)]
        assert min(map(len, hosted)) > 0
    finally:
        fleet.close(keep=True)


def test_blocks_of_clients_are_dealt_out_to_actors() -> None:
    assert [Dealt(3, 2)[client] for client in range(8)] == [0, 0, 1, 1, 2, 2, 0, 0]
    assert homes([[0, 3], [1]]) == {0: 0, 3: 0, 1: 1}
