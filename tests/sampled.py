"""Parameters of a test of which only some run every time."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], *always: Any) -> list[Any]:
    """Return the values as parameters of which all but ``always`` are slow (``make test-all`` has them).

    Raises:
        AssertionError: One of ``always`` is not among the values.
    """
    made = list(values)
    missing = [value for value in always if value not in made]
    assert not missing, missing
    return [value if value in always else pytest.param(value, marks=pytest.mark.slow) for value in made]
