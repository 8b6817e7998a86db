"""No plug-in is left in use after a test."""

from collections.abc import Iterator

import pytest

from fedtext.config.experiment import use


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    use(())
