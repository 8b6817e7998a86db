"""Fixtures of the tests of copies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import Store, object_store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    """An object store on this machine."""
    with object_store(monkeypatch, tmp_path / "cache") as store:
        yield store
