"""Users and their sentences in a file: the published SQLite and HDF5 files of StackOverflow, or a Parquet table."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from fedtext.corpora.files import check_texts, decoded
from fedtext.errors import UserError
from fedtext.runtime.folders import present

TRAIN, TEST = "train", "test"
_DATE, _TOKENS = "creation_date", "tokens"  # features of the published files


class Sentence(NamedTuple):
    """A sentence of a user: its split, its date as a text or a number that sorts, and its words between blanks."""

    split: str
    date: str | int
    text: str


class User(NamedTuple):
    """A user, and the sentences in the order of the file."""

    name: str
    sentences: list[Sentence]


class Columns(NamedTuple):
    """The part of a file that is loaded: columns of a Parquet table, and whether the published test split is.

    Without it a table needs no column of the split: all rows are then of train.
    """

    user: str
    text: str
    date: str
    split: str
    published: bool


def files_of(path: Path, columns: Columns) -> list[Path]:
    """Return the files that ``read_users`` reads: of HDF5, that of the test split too.

    Raises:
        UserError: There is no such file beside the other.
    """
    if not columns.published or READERS.get(path.suffix) is not _hdf5:
        return [path]
    beside = path.with_name(path.name.replace(TRAIN, TEST))
    if beside == path or not present(beside):
        raise UserError(f"corpus.test: published needs the file {beside.name} beside {path}: set it to latest")
    return [path, beside]


def read_users(path: Path, columns: Columns) -> Iterator[User]:
    """Read the users of a file one after the other.

    Args:
        path: The file, whose ending names its format.
        columns: Columns of a Parquet table.

    Raises:
        UserError: The file cannot be read, or is not as expected. The message names the user or the row.
    """
    reader = READERS.get(path.suffix)
    if reader is None:
        raise UserError(f"corpus.path: {path} is none of {', '.join(READERS)}: convert it")
    yield from reader(path, columns)


def _sqlite(path: Path, columns: Columns) -> Iterator[User]:
    rows = "SELECT client_id, split_name, serialized_example_proto FROM examples WHERE split_name IN (?, ?)"
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            found = database.execute(f"{rows} ORDER BY client_id, rowid", (TRAIN, TEST))
            seen = set[str]()
            for name, examples in groupby(found, key=itemgetter(0)):
                if not isinstance(name, str | int):
                    raise UserError(f"{path} has an example whose client_id is {name!r}, and no text: fetch it again")
                _check_name(str(name), path)
                if str(name) in seen:
                    raise UserError(f"{path} has the client_id {name!r} as a number and as a text: store texts")
                seen.add(str(name))
                yield User(str(name), [_sentence(features(raw), split, path, name) for _, split, raw in examples])
        finally:
            database.close()
    except sqlite3.Error as error:
        raise UserError(f"{path} cannot be read as the published SQLite file ({error}): fetch it again") from error
    except UserError:
        raise
    except (IndexError, TypeError, ValueError) as error:
        raise UserError(f"{path} has an example that is no tf.train.Example ({error}): fetch it again") from error


def _check_name(name: str, path: Path) -> None:
    """Raise UserError if a user has a blank name: such sentences are of several users, and would be one client's."""
    if not name.strip():
        raise UserError(f"{path} has an example whose client_id is {name!r}, and names no user: drop such examples")


def _sentence(example: Mapping[str, bytes], split: str, path: Path, user: object) -> Sentence:
    missing = [name for name in (_DATE, _TOKENS) if name not in example]
    if missing:
        raise UserError(f"{path}: an example of user {user} has no feature {missing[0]!r}: fetch it again")
    where = f"{path}, user {user}"
    date = decoded(example[_DATE], where)
    if not date.strip():  # it would count as the earliest one
        raise UserError(f"{where}: an example has an empty {_DATE!r}: drop such examples")
    return Sentence(split, date, decoded(example[_TOKENS], where))


def features(example: bytes) -> dict[str, bytes]:
    """Return the features of a serialized ``tf.train.Example`` that are bytes, the first value of each.

    Raises:
        IndexError, ValueError: It is none.
    """
    found = {}
    for whole in _fields(example, 1):  # Example.features
        for entry in _fields(whole, 1):  # Features.feature, a map
            (name,), (feature,) = _fields(entry, 1), _fields(entry, 2)
            for values in _fields(feature, 1)[:1]:  # Feature.bytes_list
                for value in _fields(values, 1)[:1]:  # BytesList.value
                    found[name.decode()] = value
    return found


def _fields(message: bytes, number: int) -> list[bytes]:
    """Return the values of a length-delimited field of a protobuf message."""
    place, found = 0, []
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == 2:
            size, place = _varint(message, place)
            if place + size > len(message):
                raise ValueError("a field ends behind its message")
            if tag >> 3 == number:
                found.append(message[place : place + size])
            place += size
        elif kind == 0:
            _, place = _varint(message, place)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of type {kind}")
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return a number of a protobuf message, and where it ends."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _hdf5(path: Path, columns: Columns) -> Iterator[User]:
    try:
        import h5py
    except ImportError as error:
        needed = "needs h5py, which is not installed: pip install 'fedtext[hdf5]'"
        raise UserError(f"corpus.path: {path} {needed}") from error
    beside = files_of(path, columns)[-1]
    try:
        with h5py.File(path) as train, h5py.File(beside) as test:
            later = test["examples"] if columns.published else {}
            for name in train["examples"]:
                _check_name(name, path)
                sentences = list(_of_group(train["examples"][name], TRAIN, path, name))
                if name in later:
                    sentences += _of_group(later[name], TEST, beside, name)
                yield User(name, sentences)
    except UserError:
        raise
    except (OSError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:  # h5py's, of another layout
        raise UserError(f"{path} cannot be read as the published HDF5 file ({error}): fetch it again") from error


def _of_group(group: Any, split: str, path: Path, user: str) -> Iterator[Sentence]:
    for date, text in zip(group[_DATE][()], group[_TOKENS][()], strict=True):
        yield _sentence({_DATE: date, _TOKENS: text}, split, path, user)


def _parquet(path: Path, columns: Columns) -> Iterator[User]:
    seen = set[str]()
    for name, rows in groupby(_rows(path, columns), key=attrgetter("name")):
        if name in seen:
            raise UserError(f"{path}: the rows of user {name!r} are not together: sort the file by {columns.user!r}")
        seen.add(name)
        yield User(name, [row.sentences[0] for row in rows])


def _rows(path: Path, columns: Columns) -> Iterator[User]:
    """Yield each row as a user with one sentence."""
    import pyarrow
    import pyarrow.parquet

    wanted, before = [columns.user, columns.text, columns.date, columns.split], 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if not columns.published and columns.split not in file.schema_arrow.names:
                wanted.pop()
            missing = [name for name in wanted if name not in file.schema_arrow.names]
            if missing:
                key = columns._fields[columns.index(missing[0])].replace("text", "tokens")
                raise UserError(
                    f"{path} has no column {missing[0]!r}, only {', '.join(file.schema_arrow.names)}: name it with "
                    f"corpus.{key}{' or set corpus.test: latest' if key == 'split' else ''}"
                )
            for batch in file.iter_batches(columns=wanted):
                table = pyarrow.Table.from_batches([batch])
                check_texts(path, columns.text, table[columns.text])
                texts = [columns.user, columns.text, *wanted[3:]]
                found = [_texts(path, name, table[name]) for name in texts]
                found.insert(2, _dates(path, columns, table[columns.date]))
                for name, values in zip(wanted, found, strict=True):
                    _check_there(path, name, values, before, blank=name not in (columns.user, columns.date))
                before += len(batch)
                for user, text, date, *split in zip(*found, strict=True):
                    yield User(user, [Sentence(split[0] if split else TRAIN, date, text)])
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} cannot be read as parquet ({reason}): fetch it again") from error


def _check_there(path: Path, name: str, values: list[Any], before: int, blank: bool) -> None:
    """Check that no value of some rows is missing.

    Args:
        path: The file, for the message.
        name: Name of the column.
        values: Its values.
        before: Number of rows before them.
        blank: Whether a value may be blank. A user without a name would be one client with the texts of many, and an
            empty date the earliest one.

    Raises:
        UserError: One is missing. The message names the row.
    """
    for row, value in enumerate(values, start=before + 1):
        if value is None or not (blank or not isinstance(value, str) or value.strip()):
            raise UserError(f"{path}, row {row}: column {name!r} has a missing value: drop such rows")


def _texts(path: Path, name: str, column: Any) -> list[Any]:
    """Return a column as texts. Raises UserError if its values have none."""
    import pyarrow

    try:
        return list(column.cast(pyarrow.string()).to_pylist())
    except pyarrow.ArrowException as error:
        reason = str(error).partition(" using ")[0]
        raise UserError(f"{path}: column {name!r} cannot be read as text ({reason}): convert it") from error


def _dates(path: Path, columns: Columns, column: Any) -> list[Any]:
    """Return the dates of some rows as numbers, since local times do not sort where clocks are set back, or as texts.

    Raises:
        UserError: The column has something else.
    """
    from pyarrow import int32, int64, string, types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return list(column.cast(kind).cast(int32() if kind.bit_width == 32 else int64()).to_pylist())
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise UserError(
            f"{path}: column {columns.date!r} must contain times, or texts that sort by time, and its type is {kind}: "
            "convert it"
        )
    return list(column.cast(string()).to_pylist())


READERS: dict[str, Callable[[Path, Columns], Iterator[User]]] = {
    ".sqlite": _sqlite,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".parquet": _parquet,
}
