"""JSON files that one command leaves to the next: their form is checked whenever one is read."""

from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from fedtext.errors import UserError

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_json(file: Path, kind: type[T], then: str = "bring it back from a copy") -> T:
    """Read a JSON file.

    Args:
        file: The file.
        kind: The type of its content: a ``TypedDict``, a dataclass, or a type of containers.
        then: What to do if it is damaged, for the message.

    Raises:
        UserError: It cannot be read, or has another content.
    """
    try:
        found: T = _adapter(cast(Hashable, kind)).validate_json(file.read_bytes(), strict=True)
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): {then}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{file} is damaged ({f'{place}: ' if place else ''}{first['msg']}), or another version wrote it: {then}"
        ) from error
    return found
