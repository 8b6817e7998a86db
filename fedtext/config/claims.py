"""Bounds and guarantees that a mechanism inherits although it replaces a part of the class that states them."""

import inspect
from collections.abc import Iterator
from typing import Any, Literal

from fedtext.mechanisms import Mechanism


def inherited_claims(cls: type[Mechanism]) -> list[str]:
    """Return the hooks that state a bound or a guarantee of a class of which a subclass replaces a part.

    Whatever it replaces, but for ``Mechanism.free``, may be what they rest on: the output, a helper of it, or a key. A
    guarantee may rest on the bound, and a bound does not rest on the guarantee.
    """
    found, claims = list[str](), ("bound", "guarantee", "shuffled")
    for place, claim in enumerate(claims):
        depth, owner = next((depth, made) for depth, made in enumerate(cls.__mro__) if claim in vars(made))
        replaced = {name for made in cls.__mro__[:depth] for name in _replaced(made, owner)}
        if owner is not Mechanism and replaced.difference(claims[place + 1 :]):
            found.append(claim)
    return found


def _replaced(cls: type, base: Any) -> Iterator[str]:
    """Yield the names of methods, attributes and keys that a class replaces of one that it is derived from."""
    for name in vars(cls).keys() - vars(_Plain).keys() - _OF_CLASSES:
        if name not in Mechanism.free and hasattr(base, name):
            yield name
    for name in inspect.get_annotations(cls):
        if name not in Mechanism.free and name in base.model_fields:
            yield name


class _Plain(Mechanism):
    """A mechanism for the attributes that every class of one has."""

    name: Literal["plain"] = "plain"


_OF_CLASSES = {"__orig_bases__", "__parameters__", "__firstlineno__", "__static_attributes__", "__annotations_cache__"}
