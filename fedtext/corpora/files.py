"""Readers of tables and text files. Every problem with a file is reported in one sentence."""

import codecs
import csv
import difflib
import mmap
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtext.errors import UserError

if TYPE_CHECKING:
    import pyarrow

_LONGEST = 1 << 24  # bytes of a field
_RETURN = re.compile(r"(?<=\r)(?!\n)")  # behind a line end of old files


def read_table(path: Path, columns: Mapping[str, str], nullable: Collection[str] = ()) -> "pyarrow.Table":
    """Read columns of a Parquet file or of a .csv file with a header.

    Args:
        path: The file.
        columns: Names of the columns with their Arrow types (``int64``, ``string``, ...).
        nullable: Columns that may have missing values.

    Raises:
        UserError: The file cannot be read or has no rows, a column is missing or has another type, a text is not
            UTF-8, a quotation mark that begins a field is not closed at its end, or a value is missing in a column that
            is not ``nullable``.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()])
    try:
        if path.suffix == ".csv":
            check_utf8(path)
            options = pyarrow.csv.ConvertOptions(column_types=schema)
            check_quotes(path, ",")
            read = pyarrow.csv.read_csv(path, convert_options=options)
        else:
            with pyarrow.parquet.ParquetFile(path) as file:
                read = file.read([name for name in file.schema_arrow.names if name in columns])
        missing = [name for name in columns if name not in read.column_names]
        if missing:
            raise UserError(f"{path} has no column {missing[0]!r}: it must have {', '.join(columns)}")
        for name in columns:
            if schema.field(name).type == pyarrow.string():
                check_texts(path, name, read[name])
        table = read.select(list(columns)).cast(schema)
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} cannot be read as {path.suffix[1:]} ({reason}): fetch it again") from error
    for name in columns:
        if table[name].null_count and name not in nullable:
            raise UserError(f"{path} has a missing value in column {name!r}: fetch it again")
    if not table.num_rows:
        raise UserError(f"{path} holds no rows: fetch it again")
    return table


def check_texts(path: Path, name: str, column: "pyarrow.ChunkedArray") -> None:
    """Check that a column of a table contains texts, or bytes that are texts in UTF-8.

    Args:
        path: The file, for the message.
        name: Name of the column.
        column: The column.

    Raises:
        UserError: It does not.
    """
    import pyarrow
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    bytes_ = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    if not (texts or bytes_ or types.is_null(kind)):
        others = types.is_temporal(kind) or types.is_decimal(kind)
        advice = f"write it as text, as df[{name!r}].astype(str) of pandas is" if others else "convert it"
        raise UserError(f"{path}: column {name!r} must contain texts, and its type is {column.type}: {advice}")
    try:
        (column if texts else column.cast(pyarrow.string())).validate(full=True)
    except pyarrow.ArrowException:
        for number, value in enumerate(column.cast(pyarrow.binary()).to_pylist(), start=1):
            if value is not None:
                decoded(value, f"{path}, row {number}, column {name!r}")
        raise


def decoded(raw: bytes, where: str) -> str:
    """Decode UTF-8.

    Raises:
        UserError: It is not UTF-8. The message names the place ``where`` and the first invalid byte.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise UserError(f"{where}: it is UTF-16: convert the file (iconv -f UTF-16 -t UTF-8)") from error
        raise UserError(
            f"{where}, byte {error.start + 1}: 0x{raw[error.start]:02x} is not UTF-8: convert the file (iconv -f "
            "WINDOWS-1252 -t UTF-8, if that is what it is), or drop such bytes from it (iconv -f UTF-8 -t UTF-8 -c)"
        ) from error


def text_lines(path: Path) -> Iterator[str]:
    """Read the lines of a text file in UTF-8, with line ends and without a byte-order mark.

    Raises:
        UserError: The file cannot be read, or is not UTF-8. The message names the line and the byte.
    """
    try:
        with open(path, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                raw = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                yield decoded(raw, f"{path}, line {number}")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): fetch it again") from error


def check_utf8(path: Path) -> None:
    """Raise UserError unless a file is text in UTF-8."""
    for _ in text_lines(path):
        pass


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file in UTF-8, without line ends. Raises UserError as ``text_lines`` does."""
    return [line.rstrip("\r\n") for line in text_lines(path)]


def nearest(name: str, known: list[str]) -> str:
    """Return the end of a message about an unknown name: the most similar known name; empty if there is none."""
    near = difflib.get_close_matches(name, known, 1, 0.0)
    return f": did you mean {near[0]!r}?" if near else ""


def separated(columns: Sequence[str]) -> str:
    """Return the end of a message about a table with one column, if its name looks like several; else empty."""
    others = {";": "semicolons", "\t": "tabs", "|": "bars"}
    if len(columns) == 1 and (by := next((word for mark, word in others.items() if mark in columns[0]), "")):
        other = ", or name the file .tsv" if by == "tabs" else ""
        return f": its columns seem to be separated by {by}; write commas between them{other}"
    return ""


def check_quotes(path: Path, delimiter: str) -> None:
    """Check that each quotation mark that begins a field is closed at the end of that field.

    ``read_csv`` goes on behind such a field, so that rows up to another quotation mark become one, and marks are lost.

    Args:
        path: A file of CSV or TSV.
        delimiter: What separates fields.

    Raises:
        UserError: One is not. The message names the row.
    """
    if not _has_open_quotes(path, delimiter):
        return
    lines = (part for line in text_lines(path) for part in _RETURN.split(line) if part)
    before, row = csv.field_size_limit(_LONGEST), 0  # the header is row 0
    try:
        for fields in csv.reader(lines, delimiter=delimiter, strict=True):
            row += bool(fields)
    except csv.Error as error:
        raise UserError(
            f"{path}, {f'row {row}' if row else 'header'}: a quotation mark begins a field and none ends it, or it "
            f"goes on behind the mark that does: {quoting(delimiter)}"
        ) from error
    finally:
        csv.field_size_limit(before)


def _has_open_quotes(path: Path, delimiter: str) -> bool:
    """Whether a field of a file begins with a quotation mark that is not closed at its end. Rows are not told apart."""
    if not path.stat().st_size:
        return False
    ends = rb"[\r\n%s]" % delimiter.encode()
    # What is before the mark is looked at behind it: a search for one character is forty times as fast.
    begins = rb'"(?:(?<=%s")|(?<=\A")|(?<=\A%s"))' % (ends, codecs.BOM_UTF8)
    quoted = re.compile(rb'%s[^"]*+(?:""[^"]*+)*+("(?=%s|\Z))?' % (begins, ends))
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(found[1] is None for found in quoted.finditer(content))


def quoting(delimiter: str) -> str:
    """Return the end of a message on a field that is not written as it should be."""
    return (
        f"put a text that contains a {'tab' if delimiter == chr(9) else 'comma'}, a line break or a quotation mark "
        'between quotation marks, and double those within it ("")'
    )
