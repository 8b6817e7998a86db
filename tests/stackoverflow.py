"""Small files in the layouts of the published federated StackOverflow corpus."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple


class Row(NamedTuple):
    """A sentence, with the names of the published columns."""

    client_id: str
    split: str
    creation_date: str
    tokens: str


def example(**features: str | int) -> bytes:
    """Return a serialized ``tf.train.Example``."""
    return _field(
        1, b"".join(_field(1, _field(1, name.encode()) + _field(2, _value(v))) for name, v in features.items())
    )


def _value(value: str | int) -> bytes:
    """A Feature: a list of bytes, or a list of int64 whose numbers are packed."""
    return _field(1, _field(1, value.encode())) if isinstance(value, str) else _field(3, _field(1, _varint(value)))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def sqlite_file(rows: Iterable[Row]) -> bytes:
    """Return the content of an SQLite file with these sentences."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
        database.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
        for row in rows:
            proto = example(score=3, creation_date=row.creation_date, title="how ?", tokens=row.tokens)
            database.execute("INSERT INTO examples VALUES (?, ?, ?)", (row.split, row.client_id, proto))
        database.commit()
        return database.serialize()
