"""Corpora of the user, mutated: CSV, TSV, JSON lines, Parquet, and folders of text files."""

import csv
import io
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fuzz import raw
from tests.fuzz.values import VALUES

ROWS = [
    {"text": f"{word} {other} thing number {number}", "label": label, "client": f"shop{number % 3}", "split": split}
    for number, (word, label) in enumerate([("good", "yes"), ("bad", "no"), ("fine", "yes"), ("poor", "no")] * 6)
    for other, split in (("kettle", "train"), ("lamp", "test"))
]
CELLS: tuple[Any, ...] = (
    *(None, "", " ", "x" * 3_000_000, "a\0b", "\ud800", "é", "\x1b[2J", "two\nlines", 'quo"te'),
    *("comma,", "\t", "-1", "1e400", "nan"),
    *(1, -1, 2**70, 1.5, float("nan"), float("inf"), True, [], ["a"], [["a"]], {}, {"a": 1}, b"\xff", b"bytes"),
)


def write(path: Path, draw: random.Random) -> dict[str, Any]:
    """Write a mutated corpus at ``path`` and return its section of an experiment."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    rows = [dict(row) for row in ROWS]
    form = draw.choice(("csv", "tsv", "jsonl", "json", "parquet", "arrow", "folder"))
    if draw.random() < 0.6:
        _change(rows, draw)
    if form == "folder":
        return _folder(path, rows, draw)
    file = path / f"table.{form}"
    data = _delimited(rows, form) if form in ("csv", "tsv") else FORMS[form](rows, draw)
    if draw.random() < 0.5:
        data = raw.mutated(data, draw)
    if draw.random() < 0.1:
        data = data.decode("utf-8", "replace").encode(draw.choice(("latin-1", "cp1252", "utf-16", "utf-32")), "replace")
    file.write_bytes(data)
    if draw.random() < 0.05:
        (path / "table.csv").mkdir(exist_ok=True) if form != "csv" else file.with_suffix(".jsonl").write_bytes(data)
    return _section(file if draw.random() < 0.8 else path, draw)


def _section(file: Path, draw: random.Random) -> dict[str, Any]:
    """The section that reads a table, seldom with a wrong value."""
    section: dict[str, Any] = {"name": "table", "path": str(file)}
    section |= draw.choice(({}, {"client": "client"}, {"clients": 3}, {"clients": 1000, "missing": "drop"}))
    section |= draw.choice(
        ({}, {"split": 0.3}, {"missing": "drop"}, {"validation": 0.5}, {"text": {"name": "hash", "buckets": 50}})
    )
    if draw.random() < 0.15:
        section[draw.choice(("text", "label", "client", "split", "path"))] = draw.choice(
            (*VALUES, "label", "text", "file")
        )
    return section


def _change(rows: list[dict[str, Any]], draw: random.Random) -> None:
    """Change one cell, one column, or some rows."""
    column, value = draw.choice(("text", "label", "client", "split")), draw.choice(CELLS)
    kind = draw.randrange(6)
    if kind == 0:
        draw.choice(rows)[column] = value
    elif kind == 1:
        for row in rows:
            row[column] = value
    elif kind == 2:
        for row in rows:
            row[f"{column}s"] = row.pop(column)
    elif kind == 3:
        del rows[draw.choice((0, 1, 3)) :]
    elif kind == 4:
        draw.choice(rows).pop(column)
    else:
        for number, row in enumerate(rows):
            row[column] = (number, f"{number}", None, value)[draw.randrange(4)]


def _delimited(rows: list[dict[str, Any]], form: str) -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, delimiter="," if form == "csv" else "\t", escapechar="\\")
    writer.writerows([names, *([row.get(name) for name in names] for row in rows)])
    return text.getvalue().encode("utf-8", "surrogatepass")


def _json(rows: list[dict[str, Any]], draw: random.Random) -> bytes:
    lines = [json.dumps(row, default=str, ensure_ascii=draw.random() < 0.5) for row in rows]
    if draw.random() < 0.1:
        lines[: len(lines) // 2] = ["[" * 10**5, "1" * 5000, '{"a":' * 10**5, "[]", '{"text": NaN}'][: len(lines) // 2]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _columns(rows: list[dict[str, Any]], draw: random.Random) -> Any:
    """An Arrow table. Values without a common type become strings; some columns get a type that is not for texts."""
    import pyarrow

    made = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            made[name] = pyarrow.array(values)
        except (pyarrow.ArrowException, OverflowError, UnicodeError, TypeError):
            made[name] = pyarrow.array([str(value).encode("utf-8", "replace").decode() for value in values])
        if draw.random() < 0.2:
            kinds: list[Callable[[Any], Any]] = [
                lambda column: column.cast(pyarrow.binary()),
                lambda column: column.cast(pyarrow.large_string()),
                lambda column: column.dictionary_encode(),
                lambda column: pyarrow.array([[value] for value in column.to_pylist()]),
                lambda column: pyarrow.array([{"a": value} for value in column.to_pylist()]),
                lambda column: pyarrow.nulls(len(column)),
                lambda column: pyarrow.array(range(len(column)), pyarrow.timestamp("s")),
                lambda column: (
                    pyarrow.array([1.5] * len(column), pyarrow.decimal128(5, 2)) if not len(column) else column
                ),
            ]
            with suppress(pyarrow.ArrowException):
                made[name] = draw.choice(kinds)(made[name])
    metadata = draw.choice(
        (
            None,
            None,
            {"huggingface": '{"info": {"features": {"label": {"names": ["a"]}}}}'},
            {"huggingface": "x"},
            {"huggingface": "[1]"},
        )
    )
    return pyarrow.table(made).replace_schema_metadata(metadata)


def _parquet(rows: list[dict[str, Any]], draw: random.Random) -> bytes:
    import pyarrow.parquet

    made = io.BytesIO()
    table = _columns(rows, draw)
    writable = [name for name in table.column_names if table.schema.field(name).type != pyarrow.struct([])]
    pyarrow.parquet.write_table(table.select(writable) if writable else pyarrow.table({"x": [1]}), made)
    return made.getvalue()


def _arrow(rows: list[dict[str, Any]], draw: random.Random) -> bytes:
    import pyarrow

    made, table = io.BytesIO(), _columns(rows, draw)
    with pyarrow.ipc.new_stream(made, table.schema) as writer:
        writer.write_table(table)
    return made.getvalue()


FORMS: dict[str, Callable[[list[dict[str, Any]], random.Random], bytes]] = {
    "jsonl": _json,
    "json": _json,
    "parquet": _parquet,
    "arrow": _arrow,
}


def _folder(path: Path, rows: list[dict[str, Any]], draw: random.Random) -> dict[str, Any]:
    """A folder of text files by client and label; some with bytes that are no text, or at another depth."""
    for number, row in enumerate(rows):
        file = path / f"shop{number % 3}" / str(number % 2) / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = str(row.get("text")).encode("utf-8", "surrogatepass")
        file.write_bytes(raw.mutated(text, draw) if draw.random() < 0.05 else text)
    if draw.random() < 0.2:
        (path / draw.choice(("loose.txt", "table.csv", "shop0/deep.txt", ".hidden"))).write_bytes(b"x")
    folders = draw.choice(
        (["client", "label"], ["client", "label"], ["label"], [], ["split", "label"], ["label", "label"])
    )
    return {
        "name": "table",
        "path": str(path),
        "folders": folders,
        "client": draw.choice(("client", None)),
        "split": 0.3,
    }


def use(section: dict[str, Any], home: Path) -> None:
    """What the commands do with a corpus before anything trains: read, prepare and build the first model."""
    from fedtext.api.run import load
    from fedtext.corpora.prepare import prepare
    from fedtext.server.start import participant_count

    experiment = load(
        {"name": "fuzzed", "corpus": section, "method": "fedavg", "model": {"hidden": 4, "embedding": {"dim": 4}}}
    )
    corpus = prepare(experiment.corpus, experiment.model.embedding, 0, home, experiment.own_vocabularies)
    participant_count(experiment, corpus)
