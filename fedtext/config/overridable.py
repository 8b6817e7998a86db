"""The keys that can be set on the command line, with their values, for completion in a shell.

Making the list imports every part of an experiment, and so torch: it is kept in the user's cache folder, under a name
that depends on the source.
"""

import hashlib
import json
import os
import typing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedtext.runtime.folders import cache_folder

ROOT = Path(__file__).resolve().parents[1]


class Overridable(NamedTuple):
    """A key.

    Attributes:
        path: Its dotted path.
        owners: Names of the class that has it, if that is one of several; else empty.
        values: Its possible values, if there are few.
        summary: Its description.
    """

    path: str
    owners: list[str]
    values: list[str]
    summary: str


def overridable() -> list[Overridable]:
    """Return the keys, from the cache if this version of the source has made one."""
    cache = cache_folder() / f"keys-{_digest()}.json"
    with suppress(OSError, ValueError, TypeError):
        return [Overridable(*entry) for entry in json.loads(cache.read_text("utf-8"))]
    found = list(_found())
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        for old in cache.parent.glob("keys-*.json"):
            old.unlink()
        draft = cache.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(found), "utf-8")
        draft.replace(cache)
    return found


def _digest() -> str:
    """Return a digest of names, sizes and times of the library's files."""
    files = sorted(ROOT.rglob("*.py"))
    facts = [(str(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _found() -> Iterator[Overridable]:
    from fedtext.config.experiment import Experiment
    from fedtext.schema import classes_of, fields_of, names_of

    def walk(cls: Any, prefix: str, owners: list[str]) -> Iterator[Overridable]:
        for name, field in fields_of(cls).items():
            if prefix and name == "name":
                continue
            classes, path = classes_of(field), f"{prefix}{name}"
            is_list = typing.get_origin(field.annotation) is tuple
            values = [called for one in classes for called in names_of(one)] if not is_list else []
            values = values or list(_values(field.annotation))
            summary = field.description or (classes[0].__doc__ or "").partition("\n")[0] if not values else ""
            if values or not classes or is_list:
                yield Overridable(path, owners, values, field.description or summary or "")
            for one in () if is_list else classes:
                yield from walk(one, f"{path}.", list(names_of(one)) or owners)

    yield from walk(Experiment, "", [])


def _values(annotation: Any) -> Iterator[str]:
    """Yield the values of a type that has few."""
    if annotation is bool:
        yield from ("true", "false")
    elif typing.get_origin(annotation) is typing.Literal:
        for value in typing.get_args(annotation):
            yield str(value).lower() if isinstance(value, bool) else str(value)
    elif annotation is not None and typing.get_origin(annotation) is not tuple:
        for part in typing.get_args(annotation):
            yield from _values(part)
