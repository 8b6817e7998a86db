"""Ray for tests of client actors."""

from collections.abc import Iterator

import pytest
import ray

from actors import crew
from actors.cluster import connect
from actors.placement import Plan


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    """A Ray for the tests of a file. They leave their actors to the next one."""
    connect(None, num_cpus=4, num_gpus=1)
    yield
    crew.end(crew.hire(Plan(2, 1, 0, 1), None))
    ray.shutdown()
