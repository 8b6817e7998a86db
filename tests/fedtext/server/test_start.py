"""A run is started or continued by one function, wherever its clients are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.parameters import initial
from fedtext.server.trained import trained
from fedtext.state.noise_key import noise_key
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.loops import nonempty


class Given(LocalFleet):
    """Keeps the parameters that it is given."""

    def __init__(self, *words: Any, unshared: Any, **options: Any) -> None:
        super().__init__(*words, unshared=unshared, **options)
        self.given = unshared


class Closing(LocalFleet):
    """Counts how often fleets have been closed."""

    closed = 0

    def close(self) -> None:
        Closing.closed += 1


def test_clients_have_the_runs_key_and_private_parameters_and_the_server_the_shared_ones() -> None:
    experiment = tiny.experiment("kteps")
    federation = tiny.federation(experiment, fleet=Given)
    shared, private = initial(experiment, tiny.TWO)
    assert federation.fleet.noise == noise_key(experiment, tiny.TWO.content, 2)
    assert federation.flat.tobytes() == federation.layout.pack(shared).tobytes()
    given = federation.fleet.given
    assert given.keys() == private.keys()
    assert all(np.array_equal(given[name], tensor) for name, tensor in nonempty(private.items()))


def test_what_never_changes_is_not_exchanged_and_clients_have_a_table_with_their_corpus(tmp_path: Path) -> None:
    table_VD = np.random.default_rng(0).standard_normal((len(tiny.TWO.vocabulary), 8), np.float32)
    corpus = replace(tiny.TWO, table_VD=table_VD, table_digest="table")
    model = SCRATCH | {"adapter": {"lora": {"rank": 2}}}
    federation = tiny.federation(tiny.experiment(model=model), corpus, Given, tmp_path)
    assert TABLE not in federation.state
    assert federation.fleet.given == {}
    assert np.array_equal(federation.fleet.worker.given.fixed[TABLE], table_VD)
    next(federation.run())
    assert (tmp_path / "round-000001" / "server.f32").stat().st_size == 4 * federation.layout.size
    assert np.array_equal(trained(federation, corpus).shared[TABLE], table_VD)
    assert federation.layout.numbers == federation.coordinates


def test_the_clients_of_a_run_that_cannot_be_started_are_closed(tmp_path: Path) -> None:
    next(tiny.federation(tiny.experiment(), folder=tmp_path).run())
    assert Closing.closed == 0
    with pytest.raises(UserError, match="other"):
        tiny.federation(tiny.experiment(seed=1), fleet=Closing, folder=tmp_path)
    assert Closing.closed == 1
