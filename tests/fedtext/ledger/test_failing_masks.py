"""What a ledger says of masks that may fail, where clients add the noise of a sum."""

from typing import Any

import numpy as np
import pytest

from fedtext.accounting.masks import HIDDEN, graph
from fedtext.ledger import ledger
from fedtext.ledger.assumptions import FAILING
from fedtext.ledger.together import Trial, together
from fedtext.secure.graph import neighbors_of, withstands
from tests import tiny
from tests.loops import nonempty

pytest.importorskip("dp_accounting")
CLIENTS, COLLUDING = 100, 0.1


def noised(**secure: Any) -> Any:
    server = {"weights": "uniform", "noise": {"mechanism": "skellam", "multiplier": 1.0}}
    server["secure_aggregation"] = {"colluding": COLLUDING} | secure
    return tiny.experiment(uplink=["clip"], server=server, participation={"min_clients": 80})


def said(experiment: Any) -> list[list[str]]:
    entries = nonempty(ledger(experiment, 1000, CLIENTS, 5))
    return [[part for part in entry.assumptions.split("; ") if part.startswith(FAILING)] for entry in entries]


def uncovered(neighbors: int, draws: int = 20_000) -> float:
    """The share of rounds in which client 0 has colluding neighbours alone: they have all of its masks."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(draws):
        mine = neighbors_of(range(CLIENTS), neighbors, rng)[0]
        found += all(client >= CLIENTS * (1 - COLLUDING) for client in mine)
    return found / draws


def test_few_neighbours_hide_nothing_from_a_server_and_clients_who_collude() -> None:
    assert uncovered(2) > 0.005, "far more than delta = 1e-5"
    for parts in nonempty(said(noised(neighbors=2))):
        (part,) = parts
        assert part.startswith(f"{FAILING}: not against a server with 10% of a round's clients")
        assert part.endswith("raise server.secure_aggregation.neighbors, or lower colluding")


def test_a_small_chance_is_named_and_none_is_not() -> None:
    wide = graph(CLIENTS, 16, 0.6, COLLUDING, 0.1)
    assert wide.uncovered > HIDDEN
    assert 5 * wide.uncovered < 1e-5
    for parts in nonempty(said(noised(neighbors=16))):
        assert parts == [
            f"{FAILING} with a chance of at most {wide.uncovered:.2g} in each round, which delta does not count"
        ]
    assert 0 < graph(CLIENTS, 20, 0.6, COLLUDING, 0.1).uncovered < HIDDEN
    assert said(noised(neighbors=20)) == [[], []]
    assert said(noised()) == said(noised(neighbors=2, masks=False)) == [[], []]


def test_runs_together_say_it_too() -> None:
    trials = [Trial(made, ledger(made, 1000, CLIENTS, 5)) for made in (noised(neighbors=2), noised(neighbors=16))]
    ((both, _),) = together(trials)
    assert both.assumptions.count(FAILING) == 2


def test_bits_that_only_masks_shuffle_have_the_same_chance() -> None:
    """Clients that drop out cut the ring of two neighbours into arcs, whose sums the server sees."""
    bits = {"uplink": [{"quantize": {}}, {"randomized_response": {"epsilon": 1.0}}], "wire": {"shuffle": True}}
    for neighbors, times in nonempty([(2, 1), (None, 0)]):
        secure = {"neighbors": neighbors, "colluding": 0.0}
        made = tiny.experiment(**bits, server={"weights": "uniform", "secure_aggregation": secure})
        (entry,) = (entry for entry in ledger(made, 1000, CLIENTS, 5) if entry.mechanism == "wire.shuffle")
        assert entry.assumptions.count(f"{FAILING}: not against a server") == times


def test_clients_that_a_round_does_not_wait_for_are_missing_among_neighbours() -> None:
    """With 12 neighbours the ring of those who answer may fall apart: the server says the same before the run."""
    late = {"fraction": 0.5, "min_clients": 40, "over_selection": 1.5, "pace": {}}
    secure = {"neighbors": 12, "threshold": 0.6, "colluding": 0.0, "dropping": 0.0}
    bits = {"uplink": [{"quantize": {}}, {"randomized_response": {"epsilon": 1.0}}], "wire": {"shuffle": True}}
    server = {"weights": "uniform", "secure_aggregation": secure}
    made = tiny.experiment(**bits, server=server, participation=late)
    (entry,) = (entry for entry in ledger(made, 1000, CLIENTS, 5) if entry.mechanism == "wire.shuffle")
    assert "with a chance of at most 0.00055" in withstands(made, CLIENTS)
    assert (
        f"{FAILING}: not against a server, which may see more than the sum in each round with a chance of up to "
        in (entry.assumptions)
    )
    assert "0.00055, and delta is 1e-05: raise server.secure_aggregation.neighbors, or lower dropping or " in (
        entry.assumptions
    )
