"""Types of keys in words: ``integer >= 1``, ``auto | integer > 0``."""

import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import annotated_types as limits
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedtext.schema import Extensible, names_of

PLAIN = {bool: "true or false", int: "integer", float: "number", str: "text", type(None): "null"}
RANGELESS = (type(None), bool)
SIGNS: list[tuple[type, str, str]] = [
    (limits.Ge, "ge", ">="),
    (limits.Gt, "gt", ">"),
    (limits.Le, "le", "<="),
    (limits.Lt, "lt", "<"),
    (limits.MinLen, "min_length", "of length >="),
]


def type_in_words(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Return a type in words, with its range: ``integer >= 1``, ``auto | integer > 0``."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if extensible := [data for data in metadata if isinstance(data, Extensible)]:
        return type_in_words(extensible[0].type_of())
    if origin is typing.Annotated:
        return type_in_words(inner[0], [*_constraints(inner[1:]), *metadata])
    if origin in (typing.Union, types.UnionType):  # only some types can have a range
        return " | ".join(dict.fromkeys(type_in_words(part, () if part in RANGELESS else metadata) for part in inner))
    elif origin is Literal:
        return " | ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in inner)
    elif origin is tuple:
        text = f"list of {type_in_words(inner[0])}"
    elif origin is dict:
        text = f"mapping from {type_in_words(inner[0])} to {type_in_words(inner[1])}"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return " | ".join(names_of(annotation)) or "section"
    else:
        text = PLAIN.get(annotation, "any value")
    ranges = " and ".join(_ranges(metadata))
    return f"{text} {ranges}" if ranges else text


def _constraints(metadata: Sequence[Any]) -> list[Any]:
    """Return the constraints of a nested type, which may be wrapped in a Field of its own."""
    return [limit for data in metadata for limit in (data.metadata if isinstance(data, FieldInfo) else [data])]


def _ranges(metadata: Sequence[Any]) -> Iterator[str]:
    read: Callable[[Any, str], Any] = getattr
    for limit in metadata:
        for kind, attribute, sign in SIGNS:
            if isinstance(limit, kind):
                yield f"{sign} {read(limit, attribute)}"
