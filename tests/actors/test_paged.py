"""A corpus on disk in actors: the numbers of one process with the corpus in memory, also after a restart."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

from actors import crew
from actors.cluster import connect
from actors.fleet import RayFleet
from actors.placement import Dealt, Plan, homes
from actors.shipment import ship
from fedtext.config.experiment import Experiment
from fedtext.corpora.prepare import prepare
from fedtext.server.start import start
from tests import tiny
from tests.outcomes import final

PLAN = Plan(2, 1, 0, 1)
FORUM: dict[str, Any] = {"name": "forum", "clients": 24, "median": 6, "lexicon_size": 60, "storage": "disk"}


@pytest.fixture
def started(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path_factory.mktemp("cache")))
    connect(None, num_cpus=2, num_gpus=0)
    yield
    crew.end(crew.hire(PLAN, None))
    ray.shutdown()


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_actors_read_clients_from_disk_and_give_the_same_bits(tmp_path: Path) -> None:
    content = {
        "name": "paged",
        "corpus": FORUM,
        "model": {"name": "gru_lm", "embedding": {"dim": 6}, "hidden": 6},
        "method": "scaffold",
        "training": {"rounds": 4, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
        "participation": {"fraction": 0.25},
        "evaluation": {"clients": 5, "personalize": None},
    }
    experiment = Experiment.model_validate(content)
    memory = experiment.corpus.model_copy(update={"storage": "memory"})
    parts = experiment.model.embedding, experiment.seed, None
    whole, corpus = prepare(memory, *parts), prepare(experiment.corpus, *parts)
    expected = final(tiny.federation(experiment.model_copy(update={"corpus": memory}), whole))
    shipment = ship(experiment, corpus)
    assert not shipment.clients, "nobody has the texts of all clients"
    in_actors = partial(start, experiment, corpus, partial(RayFleet, experiment, shipment, plan=PLAN), tmp_path)
    first = in_actors()
    run = first.run()
    next(run), next(run)
    first.fleet.close(keep=True)
    second = in_actors()
    assert len(second.history) == 2
    flat, rounds, states, parts = final(second)
    assert (flat, rounds, states, parts) == (expected[0], expected[1][2:], *expected[2:])
    assert states, "the method keeps a state of clients"
    second.fleet.close(keep=True)


def test_blocks_of_clients_are_dealt_out_to_actors() -> None:
    assert [Dealt(3, 2)[client] for client in range(8)] == [0, 0, 1, 1, 2, 2, 0, 0]
    assert homes([[0, 3], [1]]) == {0: 0, 3: 0, 1: 1}
