"""Loops that are known to run: one that asserts, over nothing, would pass."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def nonempty(items: Iterable[T]) -> Iterator[T]:
    """Yield the items.

    Raises:
        AssertionError: At the end, if there were none.
    """
    none = True
    for item in items:
        none = False
        yield item
    assert not none, "nothing was checked: there are no items"
