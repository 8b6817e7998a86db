"""The published layouts of StackOverflow: the same users and sentences from each of them."""

import os
import random
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from fedtext.corpora.prepare import prepare
from fedtext.corpora.stackoverflow import StackOverflowCorpus
from fedtext.corpora.stackoverflow_files import features
from fedtext.corpora.types import RawCorpus
from fedtext.errors import UserError
from fedtext.models.language import WordEmbedding
from tests.loops import nonempty
from tests.stackoverflow import Row, example, sqlite_file


def sentences() -> list[Row]:
    """Sentences of four users; the dates of each are shuffled. One has no train sentence, and one too few."""
    made = []
    for user, counts in {"77": (25, 4), "8": (1, 3), "901": (12, 0), "held": (0, 5)}.items():
        for split, count in zip(("train", "test"), counts, strict=True):
            for number in range(count):
                date = f"201{7 + (split == 'test')}-{1 + number // 28:02}-{1 + number % 28:02} 10:00:00 UTC"
                made.append(Row(user, split, date, f"{split} {user} number {number} . it works"))
    made += [Row("held", "heldout", "2016-01-01", "nobody reads it")] * 3
    random.Random(1).shuffle(made)
    return sorted(made, key=lambda row: row.client_id)


def write(folder: Path, form: str, rows: list[Row] | None = None) -> Path:
    rows = sentences() if rows is None else rows
    path = folder / f"stackoverflow.{form}"
    if form == "sqlite":
        path.write_bytes(sqlite_file(rows))
    elif form == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row._asdict() for row in rows]), path)
    else:
        h5py = pytest.importorskip("h5py")
        for split in ("train", "test"):
            path = folder / f"stackoverflow_{split}.h5"
            with h5py.File(path, "w") as file:
                for user in dict.fromkeys(row.client_id for row in rows if row.split == split):
                    there = [row for row in rows if (row.client_id, row.split) == (user, split)]
                    for name in ("creation_date", "tokens"):
                        values = [getattr(row, name).encode() for row in there]
                        file.create_dataset(
                            f"examples/{user}/{name}", data=np.array(values, object), dtype=h5py.string_dtype()
                        )
        path = folder / "stackoverflow_train.h5"
    return path


def read(path: Path, **keys: Any) -> RawCorpus:
    return StackOverflowCorpus.model_validate({"path": str(path)} | keys).read(None, 0)


@pytest.mark.parametrize("form", ["sqlite", "parquet", "h5"])
def test_published_splits_and_dates(form: str, tmp_path: Path) -> None:
    corpus = read(write(tmp_path, form))
    assert [client.name for client in corpus.clients] == ["77", "901"]
    first, second = corpus.clients
    train = [f"<s> train 77 number {number} . it works </s>" for number in range(25)]
    assert (first.train.texts, first.validation.texts) == (train[:22], train[22:])
    assert first.test.texts == [f"<s> test 77 number {number} . it works </s>" for number in range(4)]
    assert (len(second.train), len(second.validation), len(second.test)) == (11, 1, 0)


@pytest.mark.parametrize("form", ["sqlite", "parquet", "h5"])
def test_the_latest_sentences_are_for_test_if_asked_for(form: str, tmp_path: Path) -> None:
    first, second = read(write(tmp_path, form), test="latest").clients
    assert [len(side) for side in (first.train, first.validation, first.test)] == [19, 3, 3]
    assert first.test.texts[-1] == "<s> train 77 number 24 . it works </s>"
    assert [len(side) for side in (second.train, second.validation, second.test)] == [10, 1, 1]


def test_keys_bound_users_sentences_and_splits(tmp_path: Path) -> None:
    path = write(tmp_path, "sqlite")
    (only,) = read(path, clients=1, most=5).clients
    assert (len(only.train), len(only.validation), len(only.test)) == (4, 1, 4)
    assert read(path, clients=1, sentences="stops").clients[0].train.texts[1] == "<s> it works </s>"
    with pytest.raises(
        UserError, match=r"corpus.clients: 3 users are needed, and .* has 2 with enough train sentences"
    ):
        read(path, clients=3)


@pytest.mark.parametrize("form", ["sqlite", "parquet", "h5"])
def test_from_disk_it_is_the_same_corpus(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    path, parts = write(tmp_path, form), (WordEmbedding(dim=4), 0, None)
    memory, disk = (
        prepare(StackOverflowCorpus.model_validate({"path": str(path), "storage": storage}), *parts)
        for storage in ("memory", "disk")
    )
    assert (memory.vocabulary, memory.digest) == (disk.vocabulary, disk.digest)
    for one, two in nonempty(zip(memory.clients, disk.clients, strict=True)):
        assert one.name == two.name
        assert np.array_equal(one.train.tokens_T, two.train.tokens_T)
        assert np.array_equal(one.test.offsets, two.test.offsets)
    assert StackOverflowCorpus(path=str(path)).on_disk, "all users, how many there may be"


@pytest.mark.parametrize("form", ["sqlite", "parquet", "h5"])
def test_from_disk_it_follows_a_change_of_its_files(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    path = write(tmp_path, form)
    config = StackOverflowCorpus.model_validate({"path": str(path), "storage": "disk"})
    before = prepare(config, WordEmbedding(dim=4), 0, None)
    there = path.stat()
    rows = [*sentences(), Row("901", "test", "2019-01-01", "it is new")]
    write(tmp_path, form, sorted(rows, key=lambda row: row.client_id))
    if form == "h5":  # of which the train file alone is named
        os.utime(path, ns=(there.st_atime_ns, there.st_mtime_ns))
    after = prepare(config, WordEmbedding(dim=4), 0, None)
    assert [len(corpus.clients[1].test) for corpus in (before, after)] == [0, 1]


def test_a_path_is_searched_as_it_is_written_and_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "sqlite")
    (tmp_path / "data" / "stackoverflow").mkdir(parents=True)
    write(tmp_path / "data" / "stackoverflow", "parquet")
    monkeypatch.chdir(tmp_path)
    for name, data in nonempty((("stackoverflow.sqlite", None), ("stackoverflow.parquet", tmp_path / "data"))):
        assert len(StackOverflowCorpus(path=name).read(data, 0).clients) == 2


def test_an_example_is_read_without_tensorflow() -> None:
    assert features(example(score=300, tokens="é x" * 100, a="")) == {"tokens": ("é x" * 100).encode(), "a": b""}
    for raw in nonempty((b"\x0a", b"\x0a\x7f1", b"\x0b\x01", example(tokens="x")[:-2])):
        with pytest.raises((IndexError, ValueError)):
            features(raw)


def test_times_sort_as_moments_where_clocks_are_set_back(tmp_path: Path) -> None:
    """In New York an hour comes twice on 1 November 2020: by local time the third half hour would be the second."""
    first, zone = datetime(2020, 11, 1, 5, 0, tzinfo=UTC), "America/New_York"
    moments = [first + timedelta(minutes=30 * number) for number in range(4)]
    for kind in nonempty((pyarrow.timestamp("us", zone), pyarrow.timestamp("s", zone), pyarrow.timestamp("ms"))):
        table = pyarrow.table(
            {
                "client_id": ["a"] * 4,
                "tokens": [f"word{number}" for number in range(4)],
                "creation_date": pyarrow.array(moments, kind),
            }
        )
        pyarrow.parquet.write_table(table, tmp_path / "times.parquet")
        (client,) = read(tmp_path / "times.parquet", test="latest").clients
        texts = [*client.train.texts, *client.validation.texts, *client.test.texts]
        assert [word for text in texts for word in text.split() if word.startswith("word")] == [
            f"word{number}" for number in range(4)
        ]


@pytest.mark.parametrize("form", ["sqlite", "parquet", "h5"])
@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("value", ["", " "])
def test_sentences_without_a_user_or_a_date_are_refused(
    form: str, storage: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such users would be one client, and such dates the earliest ones. In HDF5 no group has an empty name."""
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    given = sorted(sentences(), key=lambda row: row.split != "train")
    for column in nonempty(["client_id", "creation_date"] if value or form != "h5" else ["creation_date"]):
        rows = [given[0]._replace(**{column: value}), *given[1:]]
        path = write(tmp_path, form, sorted(rows, key=lambda row: row.client_id))
        config = StackOverflowCorpus.model_validate({"path": str(path), "storage": storage})
        where = rf", row \d+: column '{column}' has a missing value: drop such rows$"
        message = rf"client_id is '{value}', and names no user: drop|an empty 'creation_date': drop such|{where}"
        with pytest.raises(UserError, match=message):
            prepare(config, WordEmbedding(dim=4), 0, None)


def test_the_row_of_a_missing_value_is_counted_from_the_beginning_of_the_file(tmp_path: Path) -> None:
    """Rows are read 65,536 at a time."""
    rows, path = 66_000, tmp_path / "rows.parquet"
    dates = ["2020"] * (rows - 1) + [""]
    table = pyarrow.table({name: ["train"] * rows for name in ("client_id", "tokens", "split")})
    pyarrow.parquet.write_table(table.append_column("creation_date", [dates]), path)
    with pytest.raises(UserError, match=r"rows\.parquet, row 66000: column 'creation_date' has a missing value"):
        read(path)


def test_problems_of_files_are_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sentences()
    parquet, sqlite = write(tmp_path, "parquet", rows[::-1][:3] + rows), write(tmp_path, "sqlite", rows)
    (tmp_path / "bare").mkdir()
    numbers, columns = tmp_path / "numbers.parquet", {"client_id": ["a"] * 3, "split": ["train"] * 3}
    table = pyarrow.table({**columns, "creation_date": [9, 10, 8], "tokens": ["x"] * 3})
    pyarrow.parquet.write_table(table, numbers)
    spans = pyarrow.table(
        {**columns, "tokens": ["x"] * 3, "creation_date": pyarrow.array([9, 10, 8], pyarrow.duration("s"))}
    )
    pyarrow.parquet.write_table(spans, tmp_path / "spans.parquet")
    for name, users in nonempty((("lists", [["a"]] * 3), ("gaps", ["a", None, "b"]))):
        pyarrow.parquet.write_table(
            table.set_column(0, "client_id", [users]).set_column(2, "creation_date", [["1", "2", "3"]]),
            tmp_path / f"{name}.parquet",
        )
    for path, keys, message in (
        (
            tmp_path / "none.sqlite",
            {},
            r"corpus.path: no .*none.sqlite, in a folder stackoverflow or not, in .*: correct it",
        ),
        (tmp_path / "it.csv", {}, r"corpus.path: .*it.csv is none of .sqlite, .h5, .hdf5, .parquet: convert it"),
        (parquet, {}, r"the rows of user '\w+' are not together: sort the file by 'client_id'"),
        (
            parquet,
            {"split": "side"},
            r"has no column 'side', only .*: name it with corpus.split or set corpus.test: la",
        ),
        (parquet, {"tokens": "text"}, r"has no column 'text', only .*: name it with corpus.tokens$"),
        (
            write(tmp_path / "bare", "sqlite", []),
            {},
            r"^corpus.path: .* has no user with 2 train sentences, whose split is 'train': complete it$",
        ),
        (
            numbers,
            {},
            r"column 'creation_date' must contain times, or texts that sort by time, and its type is int64: convert it",
        ),
        (
            tmp_path / "spans.parquet",
            {},
            r"must contain times, or texts that sort by time, and its type is duration\[s\]",
        ),
        (
            tmp_path / "bad.sqlite",
            {},
            r"bad.sqlite cannot be read as the published SQLite file \(file is not a database",
        ),
        (tmp_path / "bad.parquet", {}, r"bad.parquet cannot be read as parquet"),
        (
            tmp_path / "lists.parquet",
            {},
            r"column 'client_id' cannot be read as text \(Unsupported cast from list<.*> to utf8\): convert it",
        ),
        (tmp_path / "gaps.parquet", {}, r"column 'client_id' has a missing value: drop such rows"),
    ):
        for name in ("it.csv", "bad.sqlite", "bad.parquet"):
            (tmp_path / name).write_text("no database, and nothing else either" * 9)
        with pytest.raises(UserError, match=message):
            read(path, **keys)
    with closing(sqlite3.connect(tmp_path / "twice.sqlite")) as database:
        database.execute("CREATE TABLE examples (client_id, split_name TEXT, serialized_example_proto BLOB)")
        raw = example(tokens="x y", creation_date="2020")
        database.executemany("INSERT INTO examples VALUES (?, 'train', ?)", [(user, raw) for user in (1, 1, "1", "1")])
        database.commit()
    with pytest.raises(UserError, match=r"has the client_id '1' as a number and as a text: store texts"):
        read(tmp_path / "twice.sqlite", test="latest")
    with closing(sqlite3.connect(sqlite)) as database:
        database.execute("UPDATE examples SET serialized_example_proto = x'0a7f'")
        database.commit()
    with pytest.raises(
        UserError, match=r"has an example that is no tf.train.Example \(a field ends behind its message\)"
    ):
        read(sqlite)
    with closing(sqlite3.connect(sqlite)) as database:
        database.execute("UPDATE examples SET serialized_example_proto = ?", (example(tokens="x"),))
        database.commit()
    where = re.escape(str(sqlite))
    missing = rf"^{where}: an example of user 77 has no feature 'creation_date': fetch it again$"
    with pytest.raises(UserError, match=missing):
        read(sqlite)
    with closing(sqlite3.connect(sqlite)) as database:
        database.execute("UPDATE examples SET client_id = NULL")
        database.commit()
    with pytest.raises(UserError, match=r"has an example whose client_id is None, and no text: fetch it again"):
        read(sqlite)
