"""The parts of a user's table, and their columns as strings.

A table is one file or several, a folder of text files, or a data set on the Hugging Face hub. Each of these is a list
of parts. All columns are read as strings, whatever their type, so that the same table in another format gives the same
corpus.
"""

import codecs
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedtext.corpora.base import folders
from fedtext.corpora.files import check_texts, decoded, nearest, separated
from fedtext.corpora.hub import from_hub
from fedtext.corpora.table_files import READERS, open_table
from fedtext.corpora.table_values import SYNONYMS
from fedtext.errors import UserError, option
from fedtext.runtime.folders import located
from fedtext.runtime.paths import SCHEMES, is_uri

if TYPE_CHECKING:
    import pyarrow

_METADATA = ("dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json")  # not tables
_ON_THE_HUB = re.compile(r"[\w-][\w.-]*/[\w.-]+(:[\w.-]+)?")  # OWNER/NAME, or OWNER/NAME:SUBSET


@dataclass(frozen=True)
class Part:
    """The rows of one file, of one folder of text files, or of one split of a data set on the hub.

    Attributes:
        where: Its name in messages.
        columns: Names of its columns.
        load: Function that reads some of the columns.
        split: The split according to the name of the part, if any.
        named: Columns that the part lacks, each with the value of all its rows.
        rows: Names of the rows; empty if rows are counted.
    """

    where: str
    columns: tuple[str, ...]
    load: Callable[[list[str]], "pyarrow.Table"]
    split: str | None = None
    named: dict[str, str] = field(default_factory=dict)
    rows: tuple[str, ...] = ()

    def place(self, row: int) -> str:
        """Return the name of a row in messages, by its index. Rows are counted from 1, without the header."""
        return self.rows[row] if self.rows else f"{self.where}, row {row + 1}"

    def read(self, keys: dict[str, str], column: str = "column") -> "pyarrow.Table":
        """Read columns as strings.

        Args:
            keys: The name of the column for each key of the corpus.
            column: The key in place of ``column`` in messages.

        Returns:
            A table whose columns have the names of the keys. NaN becomes null, and the integers of a ``ClassLabel``
            column of ``datasets`` become names of classes.

        Raises:
            UserError: A column is missing or occurs twice, or it contains neither strings nor numbers nor booleans.
        """
        import pyarrow

        for key, name in keys.items():
            written = column if key == "column" else key
            if name not in (*self.columns, *self.named):
                raise UserError(
                    f"corpus.{written}: {self.where} has no column {name!r}, only {', '.join(self.columns)}"
                    f"{separated(self.columns) or nearest(name, list(self.columns))}"
                )
            if self.columns.count(name) > 1:
                raise UserError(
                    f"corpus.{written}: {self.where} has {self.columns.count(name)} columns {name!r}: rename one"
                )
        there = list(dict.fromkeys(name for name in keys.values() if name in self.columns))
        table = self.load(there or list(self.columns[:1]))
        return pyarrow.table(
            {
                key: self._strings(table, name)
                if name in there
                else pyarrow.array([self.named[name]] * table.num_rows, pyarrow.string())
                for key, name in keys.items()
            }
        )

    def _strings(self, table: "pyarrow.Table", name: str) -> "pyarrow.ChunkedArray":
        import pyarrow
        from pyarrow import compute, types

        column = table[name]
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if types.is_floating(column.type):
            column = compute.if_else(compute.is_nan(column), None, column)
        elif types.is_integer(column.type) and (classes := _classes(table.schema, name)):
            known = compute.if_else(compute.less(column, 0), None, column)  # -1 means no label
            if (most := compute.max(known).as_py()) is not None and most >= len(classes):
                problem = f"has the class {most}, and names of {len(classes)} classes"
                raise UserError(f"{self.where}: column {name!r} {problem}: repair it")
            return compute.take(pyarrow.chunked_array([classes]), known.cast(pyarrow.int64()))
        elif not (types.is_integer(column.type) or types.is_boolean(column.type)):
            check_texts(Path(self.where), name, column)
        return column.cast(pyarrow.string())


def _classes(schema: "pyarrow.Schema", name: str) -> list[str]:
    """Return the names of the classes of a column, if ``datasets`` has stored them in the schema."""
    try:
        noted = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        names = noted["info"]["features"][name]["names"]
    except (ValueError, LookupError, TypeError):  # it has none, or others have written it
        return []
    return names if isinstance(names, list) and all(isinstance(each, str) for each in names) else []


def parts_of(paths: Sequence[str], levels: Sequence[str], data: Path | None) -> list[Part]:
    """Return the parts of a table, in the order of ``paths`` and, within a folder, of the names of its files.

    A part has the column ``file``, the name of its file without the ending. If the names of parts contain two names of
    splits or more, each part has the column ``split``. A column of the table with one of these names takes precedence.

    Args:
        paths: Files and folders, or names on the hub.
        levels: The column for each level of the folders of text files, from the outermost to the innermost.
        data: The folder given with --data, if any.

    Raises:
        UserError: A path does not exist, or it cannot be read.
    """
    parts = [part for path in paths for part in _found(path, levels, data)]
    if len({part.split for part in parts} - {None}) < 2:
        return parts
    return [replace(part, named=part.named | {"split": part.split or Path(part.where).name}) for part in parts]


def _found(name: str, levels: Sequence[str], data: Path | None) -> list[Part]:
    path = located(name, folders(data), "corpus.path")
    if path is None:
        if _ON_THE_HUB.fullmatch(name) and Path(name).suffix.lower() not in READERS:
            return _hub(name, data)
        if is_uri(name):
            raise UserError(f"corpus.path: there is nothing at {name.partition('?')[0]}: correct it")
        if "://" in name:
            raise UserError(
                f"corpus.path: {name.partition('://')[0]}:// is none of {', '.join(SCHEMES)}: fetch it first"
            )
        raise UserError(
            f"corpus.path: no {name} in {Path.cwd()}, nor in {' or '.join(map(str, folders(data)))}: correct it, or "
            f"give its folder with {option('data', 'FOLDER')} or $FEDTEXT_DATA"
        )
    return _folder(path, levels) if path.is_dir() else [_file(path, path.parent)]


def _hub(name: str, data: Path | None) -> list[Part]:
    """Return the splits of a data set on the hub."""
    dataset, _, subset = name.partition(":")
    loaded = from_hub("table", name, data, dataset, *([subset] if subset else []))

    def load(split: str, columns: list[str]) -> "pyarrow.Table":
        return loaded[split].select_columns(columns).with_format("arrow")[:]

    return [
        Part(f"{name}/{split}", tuple(loaded[split].column_names), partial(load, split), SYNONYMS.get(split))
        for split in loaded
    ]


def _folder(folder: Path, levels: Sequence[str]) -> list[Part]:
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    texts = [path for path in files if path.suffix.lower() == ".txt" and path.parent != folder]
    if texts:
        return [_texts(folder, texts, levels)]
    tables = [
        path
        for path in files
        if path.suffix.lower() in READERS and path.name not in _METADATA and not path.name.startswith("cache-")
    ]
    formats = sorted({path.suffix.lower() for path in tables})
    if len(formats) != 1:
        there = f"files of several formats, {', '.join(formats)}" if formats else f"no file of {', '.join(READERS)}"
        raise UserError(
            f"corpus.path: {folder} has {there}, and no .txt file in a subfolder: list the files, as [train.csv, "
            "test.csv]"
        )
    return [_file(path, folder) for path in tables]


def _texts(folder: Path, files: Sequence[Path], levels: Sequence[str]) -> Part:
    """Make one part of the text files in the subfolders of a folder, whose names become columns."""
    for path in files:
        depth = len(path.relative_to(folder).parts) - 1
        if depth != len(levels):
            raise UserError(
                f"corpus.folders: {path} is {depth} folders deep in {folder}, but [{', '.join(levels)}] has "
                f"{len(levels)}: name each level, as [label] or [client, label] or [split, label]"
            )

    def load(columns: list[str]) -> "pyarrow.Table":
        import pyarrow

        values: dict[str, list[str]] = {
            level: [path.relative_to(folder).parts[place] for path in files] for place, level in enumerate(levels)
        }
        if "text" in columns:
            values["text"] = [decoded(_bytes(path), str(path)) for path in files]
        return pyarrow.table({name: pyarrow.array(values[name], pyarrow.string()) for name in columns})

    return Part(str(folder), ("text", *levels), load, rows=tuple(map(str, files)))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error


def _file(path: Path, root: Path) -> Part:
    """Make a part of a file. Its split is in the name of the file, or of a folder between it and ``root``."""
    if path.suffix.lower() not in READERS:
        raise UserError(f"corpus.path: {path} is none of {', '.join(READERS)}: convert it")
    columns, load = open_table(path)
    names = [path.stem, *(parent.name for parent in path.parents if root in parent.parents)]
    split = next((split for name in names if (split := _told(name))), None)
    return Part(str(path), columns, load, split, {"file": path.stem})


def _told(name: str) -> str | None:
    """Return the split whose name is a word of ``name``, as in ``reviews_train-00000-of-00001``; None if ambiguous."""
    told = {SYNONYMS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in SYNONYMS}
    return told.pop() if len(told) == 1 else None
