"""A run is started or continued by one function, wherever its clients are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import UserError
from fedtext.parameters import initial
from fedtext.state.noise_key import noise_key
from tests import tiny
from tests.loops import nonempty


class Given(LocalFleet):
    """Keeps the private parameters that it is given."""

    def __init__(self, *words: Any, private: Any, **options: Any) -> None:
        super().__init__(*words, private=private, **options)
        self.given = private


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


def test_the_clients_of_a_run_that_cannot_be_started_are_closed(tmp_path: Path) -> None:
    next(tiny.federation(tiny.experiment(), folder=tmp_path).run())
    assert Closing.closed == 0
    with pytest.raises(UserError, match="other"):
        tiny.federation(tiny.experiment(seed=1), fleet=Closing, folder=tmp_path)
    assert Closing.closed == 1
