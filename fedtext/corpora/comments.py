"""Comments with their authors, from a table with one comment in each row."""

import csv
import html
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fedtext.corpora.files import check_texts, separated, text_lines
from fedtext.corpora.table_files import fields_differ
from fedtext.corpora.times import seconds_of
from fedtext.errors import UserError

DELETED = ("[deleted]", "[removed]")
SUFFIXES = (".parquet", ".csv", ".json", ".jsonl", ".ndjson")
_BLANKS = str.maketrans(".\0", "  ")
_LONGEST = 1 << 24  # characters in a field of a .csv


class Comment(NamedTuple):
    """A comment, its author, and its time in seconds since 1970; 0 if there is no column of it."""

    user: str
    text: str
    time: float = 0.0


def read_comments(path: Path, body: str, author: str | None, date: str | None = None) -> Iterator[Comment]:
    """Read the comments of a file in their order.

    Deleted comments, comments of deleted accounts or without an author, and comments of blanks and full stops alone are
    left out.

    Args:
        path: The file; its ending is one of ``SUFFIXES``.
        body: Column of the texts.
        author: Column of the users; None: all comments have the user "".
        date: Column of the times, in a form of ``times.seconds_of``; None: they are not read.

    Raises:
        UserError: The file cannot be read, or a row lacks a column, a text or a time. The message names the row.
    """
    keys = {"body": body, "author": author, "date": date}
    columns = {key: column for key, column in keys.items() if column is not None}
    for number, row in enumerate(_rows(path, list(dict.fromkeys(columns.values()))), start=1):
        for key, column in columns.items():
            if column not in row:
                raise UserError(
                    f"{path}, row {number}: no column {column!r}, only {', '.join(map(str, row))}: name it with "
                    f"corpus.{key}"
                )
        user = "" if author is None else row[author]
        if row[body] is None or user is None or str(user).strip() in DELETED:
            continue
        if author is not None and not str(user).strip():  # a .csv has no other form of a missing one
            continue
        text = html.unescape(_text(row[body], body, f"{path}, row {number}"))  # reddit's own dumps have &gt; and &amp;
        if text.strip() not in DELETED and text.translate(_BLANKS).strip():
            yield Comment(str(user), text, 0.0 if date is None else _time(row[date], date, f"{path}, row {number}"))


def _time(value: Any, column: str, where: str) -> float:
    """Return the time of a comment in seconds since 1970. Raises UserError if it has none."""
    try:
        return seconds_of(value)
    except ValueError as error:
        raise UserError(f"{where}: column {column!r}: {error}") from None


def _text(value: Any, column: str, where: str) -> str:
    """Check that a comment is a text without surrogates, which JSON can contain. Raises UserError otherwise."""
    if not isinstance(value, str):
        raise UserError(f"{where}: column {column!r} must be a text, not {type(value).__name__}: repair it")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UserError(f"{where}: column {column!r} has half of a character (a surrogate): repair it") from None
    return value


def _rows(path: Path, columns: list[str]) -> Iterator[Mapping[str, Any]]:
    if path.suffix not in SUFFIXES:
        raise UserError(f"corpus.file: {path} is none of {', '.join(SUFFIXES)}: convert it")
    if path.suffix == ".parquet":
        yield from _parquet(path, columns)
        return
    try:
        lines = text_lines(path)
        if path.suffix == ".csv":
            csv.field_size_limit(_LONGEST)
            yield from _delimited(path, csv.reader(lines, strict=True), columns)
            return
        start = next(lines, "")
        if start.startswith("["):
            yield from _objects(path, json.loads(start + "".join(lines)))
        else:
            yield from _objects(path, (json.loads(line) for line in chain([start], lines) if line.strip()))
    except UserError:
        raise
    except (
        ValueError,
        RecursionError,
        csv.Error,
    ) as error:  # JSON that is too deep, or has too long numbers, too
        raise UserError(f"{path} cannot be read as {path.suffix[1:]} ({error}): repair or fetch it again") from error


def _delimited(path: Path, rows: Iterator[list[str]], columns: list[str]) -> Iterator[Mapping[str, Any]]:
    header = next((row for row in rows if row), [])
    for column in columns:
        if column not in header and (other := separated(header)):
            raise UserError(f"{path} has no column {column!r}, only {header[0]}{other}")
        if header.count(column) > 1:
            raise UserError(f"{path} has {header.count(column)} columns {column!r}: rename one")
    for number, row in enumerate((row for row in rows if row), start=1):
        if len(row) != len(header):
            raise UserError(fields_differ(path, number, len(row), len(header)))
        yield dict(zip(header, row, strict=True))


def _objects(path: Path, values: Any) -> Iterator[Mapping[str, Any]]:
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise UserError(f"{path}, row {number}: not an object of names and values: repair it")
        yield value


def _parquet(path: Path, columns: list[str]) -> Iterator[Mapping[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            whole = set(columns) <= set(file.schema_arrow.names)
            for batch in file.iter_batches(columns=columns if whole else None):
                if whole:
                    table = pyarrow.Table.from_batches([batch])
                    check_texts(path, columns[0], table[columns[0]])
                    at = table.schema.get_field_index(columns[0])
                    batch = _microseconds(table.set_column(at, columns[0], table[columns[0]].cast(pyarrow.string())))
                yield from batch.to_pylist()
    except (OSError, OverflowError, pyarrow.ArrowException) as error:  # OverflowError: a time beyond the year 9999
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} cannot be read as parquet ({reason}): fetch it again") from error


def _microseconds(table: Any) -> Any:
    """Return a table whose times are in microseconds: those in nanoseconds have no form in Python."""
    import pyarrow

    for at, field in enumerate(table.schema):
        if pyarrow.types.is_timestamp(field.type) and field.type.unit == "ns":
            times = table.column(at).cast(pyarrow.timestamp("us", field.type.tz), safe=False)
            table = table.set_column(at, field.name, times)
    return table
