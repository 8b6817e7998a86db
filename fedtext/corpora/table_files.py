"""Readers of CSV, TSV, JSON lines, Parquet and Arrow files. Every problem with a file is reported in one sentence."""

import codecs
import csv
import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedtext.corpora.files import check_quotes, check_utf8, quoting, text_lines
from fedtext.errors import UserError

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
Reader = tuple[tuple[str, ...], Callable[[list[str]], "pyarrow.Table"]]  # columns, and a function that reads some

_BLOCK = 1 << 24  # bytes that are parsed at a time: no row may be longer
_HEAD = 1000  # rows of JSON from which columns and their types are inferred
_ROW = re.compile(r" in row \d+$")  # of JSON, from 0 in each block: not those that a user counts


def open_table(path: Path) -> Reader:
    """Return the columns of a table, and a function that reads some of them.

    Raises:
        UserError: The file cannot be read. The function raises it as well.
    """
    columns, load = _reading(path, lambda: READERS[path.suffix.lower()](path))
    if not columns:
        raise UserError(f"{path} is empty: write rows into it, below a header where it is CSV or TSV")
    return columns, lambda names: _reading(path, lambda: load(names))


def _reading(path: Path, read: Callable[[], T]) -> T:
    import pyarrow

    try:
        return read()
    except (OSError, pyarrow.ArrowException, csv.Error) as error:
        reason = _ROW.sub("", str(error).partition("\n")[0])
    if path.suffix.lower() not in (".parquet", ".arrow"):
        check_utf8(path)
    raise UserError(f"{path} cannot be read as {path.suffix[1:].lower()} ({reason}): repair it")


def _delimited(path: Path, delimiter: str) -> Reader:
    header = next((row for row in csv.reader(text_lines(path), delimiter=delimiter) if row), [])
    return tuple(header), partial(_read_delimited, path, delimiter)


def _read_delimited(path: Path, delimiter: str, columns: list[str]) -> "pyarrow.Table":
    import pyarrow
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

    refused: list[Any] = []

    def refuse(row: Any) -> str:
        refused.append(row)
        return "error"

    def read(handler: Callable[[Any], str] | None) -> "pyarrow.Table":
        return read_csv(
            path,
            read_options=ReadOptions(use_threads=handler is None, block_size=_BLOCK),
            parse_options=ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=handler),
            convert_options=ConvertOptions(
                include_columns=columns,
                column_types={name: pyarrow.string() for name in columns},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )

    try:
        table = read(None)
        check_quotes(path, delimiter)
        return table
    except pyarrow.ArrowInvalid:
        check_utf8(path)  # first: the handler gets rows as strings
        with suppress(pyarrow.ArrowInvalid):
            read(refuse)  # by one thread: rows are numbered then
        if not refused:
            raise
    row = refused[0]
    raise UserError(fields_differ(path, row.number - 1, row.actual_columns, row.expected_columns, delimiter))


def fields_differ(path: Path, row: int, fields: int, expected: int, delimiter: str = ",") -> str:
    """Return that a row of a file has another number of fields than its header.

    Args:
        path: The file.
        row: Number of the row, from 1.
        fields: Number of its fields.
        expected: Number of fields of the header.
        delimiter: What separates fields.
    """
    return f"{path}, row {row}: {fields} fields, but the header has {expected}: {quoting(delimiter)}"


def _json(path: Path) -> Reader:
    head = [value for _, value in islice(_objects(path), _HEAD)]
    names = dict.fromkeys(name for value in head for name in value)
    kinds = {name: {type(value[name]) for value in head if value.get(name) is not None} for name in names}
    return tuple(names), partial(_read_json, path, kinds)


class _Object(dict[str, Any]):
    """An object of JSON.

    Attributes:
        twice: Names that it has several times.
    """

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = Counter(name for name, _ in pairs) if len(self) < len(pairs) else {}
        self.twice = {name for name, count in names.items() if count > 1}


def _objects(path: Path) -> Iterator[tuple[int, _Object]]:
    """Return the numbers and objects of the lines of a file of JSON, without blank lines.

    Raises:
        UserError: A line is no object. The message names it.
    """
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        try:
            value, reason = json.loads(line, object_pairs_hook=_Object), "not a JSON object"
        except json.JSONDecodeError as error:
            value, reason = None, f"not JSON ({error.msg}, column {error.colno})"
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, or as many brackets
            value, reason = None, f"no JSON that can be read ({str(error).partition(':')[0]})"
        if not isinstance(value, _Object):
            raise UserError(
                f"{path}, line {number}: {reason}; each line must be an object of names and values: repair it"
                + (f", or split a whole array into lines (jq -c '.[]' {path.name})" if line.startswith("[") else "")
            )
        yield number, value


def _read_json(path: Path, kinds: dict[str, set[type]], columns: list[str]) -> "pyarrow.Table":
    import pyarrow
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    # Without a schema strings that look like dates would become dates, and a column that is not read could fail.
    types = {str: pyarrow.string(), bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64()}
    found = {name: kinds[name] & set(types) - ({int} if float in kinds[name] else set()) for name in columns}
    schema = pyarrow.schema([(name, types[min(kind, key=str)]) for name, kind in found.items() if kind])
    try:
        with open(path, "rb") as file:
            if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                file.seek(0)
            table = read_json(
                file,
                ReadOptions(block_size=_BLOCK),
                ParseOptions(
                    explicit_schema=schema,
                    unexpected_field_behavior="ignore" if len(schema) == len(columns) else "infer",
                ),
            )
    except pyarrow.ArrowInvalid:
        _check_kinds(path, columns, [name for name in columns if float not in kinds[name]])  # names the line
        raise
    return table.select(columns)


def _check_kinds(path: Path, columns: Sequence[str], whole: Sequence[str]) -> None:
    """Check that each of these columns has values of one kind, and each object one of them.

    Args:
        path: The file.
        columns: Names of the columns.
        whole: Those of them whose numbers are read as whole ones.

    Raises:
        UserError: One has not, or a text has half of a character, a whole number is too long, or a line is no object.
            The message names the line.
    """
    found: dict[str, str] = {}
    for number, value in _objects(path):
        for name in columns:
            if name in value.twice:
                raise UserError(f"{path}, line {number}: the name {name!r} is there twice: leave one of them out")
            given = value.get(name)
            if given is None:
                continue
            where = f"{path}, line {number}: column {name!r} has {reprlib.repr(given)}"
            if isinstance(given, str) and any("\ud800" <= letter <= "\udfff" for letter in given):
                raise UserError(f"{where}, with half of a character (a surrogate): repair it")
            if name in whole and isinstance(given, int) and not -(1 << 63) <= given < 1 << 63:
                raise UserError(f"{where}, a whole number of more than 64 bits: write it as a text, in quotation marks")
            kind = _kind(given)
            if found.setdefault(name, kind) != kind:
                raise UserError(f"{where}, which is {kind}, and {found[name]} before: write values of one kind")


def _kind(value: object) -> str:
    """Return what a value of JSON is, for messages."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "a text" if isinstance(value, str) else "a list or an object"


def _parquet(path: Path) -> Reader:
    from pyarrow.parquet import ParquetFile

    def load(columns: list[str]) -> "pyarrow.Table":
        with ParquetFile(path) as file:
            return file.read(columns)

    with ParquetFile(path) as file:
        return tuple(file.schema_arrow.names), load


def _arrow(path: Path) -> Reader:
    """Open a file in the format of ``save_to_disk`` of ``datasets``."""
    import pyarrow

    def load(columns: list[str]) -> "pyarrow.Table":
        with pyarrow.memory_map(str(path)) as file:
            return pyarrow.ipc.open_stream(file).read_all().select(columns)

    with pyarrow.memory_map(str(path)) as file:
        return tuple(pyarrow.ipc.open_stream(file).schema.names), load


READERS: dict[str, Callable[[Path], Reader]] = {
    ".csv": partial(_delimited, delimiter=","),
    ".tsv": partial(_delimited, delimiter="\t"),
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
