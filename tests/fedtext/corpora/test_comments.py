"""Comments of reddit as clients of a language model, on files made here."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from fedtext.corpora.prepare import prepare
from fedtext.corpora.reddit import RedditCorpus
from fedtext.corpora.types import RawCorpus
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.state.fingerprint import fingerprint
from tests import tiny
from tests.loops import nonempty

MAY, DAY = 1_430_438_400, 86_400  # the first of May 2015, and a day, in seconds


def comments() -> list[dict[str, Any]]:
    """40 of ann, 20 of bob, 10 of cat, in turns; and what is dropped. Each names its writer and number."""
    rows = [
        {"author": user, "body": f"It's {user}, number {number}.\nSee &lt;it&gt;?", "edited": bool(number % 2) or 17}
        for number in range(40)
        for user, count in (("ann", 40), ("bob", 20), ("cat", 10))
        if number < count
    ]
    gone = [("ann", "[deleted]"), ("bob", "[removed]"), ("[deleted]", "Hello."), (None, "Hello."), (" ", "Hello."),
            ("ann", None), ("ann", " . ...\n")]  # fmt: skip
    return [{"author": user, "body": body, "edited": False} for user, body in gone] + rows


def as_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("\n\n".join(map(json.dumps, rows)))


def as_array(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text(json.dumps(rows))


def as_csv(file: Path, rows: list[dict[str, Any]]) -> None:
    with open(file, "w", newline="", encoding="utf-8-sig") as target:
        writer = csv.DictWriter(target, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def as_parquet(file: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.table({name: [row[name] for row in rows] for name in ("author", "body")}), file)


def reddit(folder: Path, **options: Any) -> RawCorpus:
    return RedditCorpus(**{"clients": 2} | options).read(folder, 0)


def texts(raw: RawCorpus, side: str) -> list[list[str]]:
    return [getattr(client, side).texts for client in raw.clients]


def numbers(sentences: list[str]) -> list[int]:
    return [int(sentence.split()[-2]) for sentence in sentences if "number" in sentence]


@pytest.mark.parametrize(
    ("file", "save"),
    [("a.jsonl", as_lines), ("a.json", as_array), ("a.json", as_lines), ("a.csv", as_csv), ("a.parquet", as_parquet)],
)
def test_writers_are_clients(tmp_path: Path, file: str, save: Callable[[Path, list[dict[str, Any]]], None]) -> None:
    save(tmp_path / file, comments())
    raw = reddit(tmp_path, file=file)
    assert [client.name for client in raw.clients] == ["user-1", "user-2"]
    assert [[len(getattr(c, side)) // 2 for side in ("train", "validation", "test")] for c in raw.clients] == [
        [32, 4, 4], [16, 2, 2],
    ]  # fmt: skip
    for client, user in zip(raw.clients, ("ann", "bob"), strict=True):
        sides = [client.train.texts, client.validation.texts, client.test.texts]
        assert sorted(number for side in sides for number in numbers(side)) == list(range(sum(map(len, sides)) // 2))
        assert {sentence.split()[3] for side in sides for sentence in side if "number" in sentence} == {user}
        assert all(nonempty(left < right for left, right in pairwise(numbers(sides[0]))))
        assert sides[0][1] == "<s> see < it > ? </s>"
        assert sides[0][0].startswith(f"<s> it 's {user} , number")
    assert texts(raw, "test") == texts(reddit(tmp_path.parent, file=str(tmp_path / file)), "test")


def test_comments_are_parted_by_the_seed_or_as_they_follow(tmp_path: Path) -> None:
    as_lines(tmp_path / "reddit.jsonl", comments())
    drawn = numbers(reddit(tmp_path).clients[0].test.texts)
    assert drawn != [36, 37, 38, 39]
    assert drawn == numbers(reddit(tmp_path).clients[0].test.texts)
    assert drawn != numbers(RedditCorpus(clients=2).read(tmp_path, 1).clients[0].test.texts)
    client = reddit(tmp_path, order="file").clients[0]
    assert numbers(client.test.texts) == [36, 37, 38, 39]
    assert numbers(client.validation.texts) == [32, 33, 34, 35]
    assert [len(c.validation) for c in reddit(tmp_path, validation=0.5).clients] == [4, 2]
    assert [len(c.validation) for c in reddit(tmp_path, validation=0).clients] == [0, 0]


def dated(form: Callable[[int], Any]) -> list[dict[str, Any]]:
    """The comments, of which each user's are one day apart from 2015-05-01 on, the latest first in the file."""
    there = [row for row in comments() if "number" in str(row["body"])]
    day = [int(row["body"].split("number ")[1].split(".")[0]) for row in there]
    return [row | {"created_utc": form(MAY + DAY * number)} for row, number in zip(there, day, strict=True)][::-1]


FORMS: list[Callable[[int], Any]] = [
    int,
    float,
    str,
    lambda seconds: datetime.fromtimestamp(seconds, UTC).isoformat(),
    lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d"),
    lambda seconds: datetime.fromtimestamp(seconds, timezone(timedelta(hours=-7))).isoformat(),
]


@pytest.mark.parametrize("form", FORMS)
def test_comments_are_parted_by_their_dates(tmp_path: Path, form: Callable[[int], Any]) -> None:
    as_lines(tmp_path / "reddit.jsonl", dated(form))
    client = reddit(tmp_path, order="date", date="created_utc").clients[0]
    sides = (client.train, client.validation, client.test)
    assert [numbers(side.texts) for side in sides] == [list(range(32)), [32, 33, 34, 35], [36, 37, 38, 39]]


def test_dates_of_a_parquet_are_times(tmp_path: Path) -> None:
    rows = dated(int)
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in ("author", "body")}
    for unit, more in nonempty([("s", 0), ("ns", 1)]):
        ticks = [row["created_utc"] * {"s": 1, "ns": 10**9}[unit] + more for row in rows]
        times = pa.array(ticks, pa.timestamp(unit, "UTC"))
        pq.write_table(pa.table(columns | {"created_utc": times}), tmp_path / "a.parquet")
        client = reddit(tmp_path, file="a.parquet", order="date", date="created_utc").clients[0]
        assert numbers(client.test.texts) == [36, 37, 38, 39]


def test_months_are_selected(tmp_path: Path) -> None:
    as_lines(tmp_path / "reddit.jsonl", dated(int))
    options = {"order": "date", "date": "created_utc", "clients": 1}
    client = reddit(tmp_path, test_from="2015-06", **options).clients[0]
    sides = (client.train, client.validation, client.test)
    assert [numbers(side.texts) for side in sides] == [list(range(28)), [28, 29, 30], list(range(31, 40))]
    client = reddit(tmp_path, since=date(2015, 5, 11), test_from="2015-05-21", until="2015-06-01", **options).clients[0]
    sides = (client.train, client.validation, client.test)
    assert [numbers(side.texts) for side in sides] == [list(range(10, 19)), [19], list(range(20, 31))]
    with pytest.raises(UserError, match=r"only 1 have .*, two of them before 2015-06 and one after \(corpus"):
        reddit(tmp_path, test_from="2015-06", **options | {"clients": 2})
    with pytest.raises(UserError, match=r"corpus\.test_from: 2016-01 leaves no two comments before it"):
        reddit(tmp_path, test_from="2016-01", partition="iid", **options)
    raw = reddit(tmp_path, since="2015-05-31", date="created_utc", min_comments=3, clients=1)
    assert sorted(numbers([*raw.clients[0].train.texts, *raw.clients[0].test.texts])) != list(range(40))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "None is no time"),
        (True, "True is no time"),
        ("", "'' is no time"),
        ("20150501", "'20150501' may be a day or a number of seconds: write seconds since 1970, or a date in"),
        (20150501, "20150501 may be a day or a number of seconds"),
        ("yesterday", "'yesterday' is no time from 1970 to 9999: write seconds since 1970, or a date in ISO 8601"),
        (1430438400000, "1430438400000 is no time"),
        ("nan", "'nan' is no time"),
        (-1, "-1 is no time"),
        ([1], r"\[1\] is no time"),
    ],
)
def test_a_row_without_a_time_is_named(tmp_path: Path, value: Any, said: str) -> None:
    rows = dated(int)
    rows[2]["created_utc"] = value
    as_lines(tmp_path / "reddit.jsonl", rows)
    with pytest.raises(UserError, match=rf"reddit\.jsonl, row 3: column 'created_utc': {said}"):
        reddit(tmp_path, order="date", date="created_utc")
    del rows[2]["created_utc"]
    as_lines(tmp_path / "reddit.jsonl", rows)
    with pytest.raises(UserError, match=r"row 3: no column 'created_utc', only .*: name it with corpus\.date"):
        reddit(tmp_path, order="date", date="created_utc")


def test_digests_of_runs_without_dates_are_those_of_before() -> None:
    model = {"name": "gru_lm", "embedding": {"dim": 4, "init": {"random": {"std": 0.3}}}, "hidden": 4}
    corpus: dict[str, Any] = {"name": "reddit", "clients": 2, "vocabulary": 50}
    made = tiny.experiment("fedatt", corpus=corpus, model=model, evaluation={"personalize": None})
    assert fingerprint(made, "content", 2) == "284fdf47d7b23c98"
    corpus |= {"date": "created_utc", "since": "2015-05"}
    dates = tiny.experiment("fedatt", corpus=corpus, model=model, evaluation={"personalize": None})
    assert fingerprint(dates, "content", 2) != fingerprint(made, "content", 2)


def test_comments_in_equal_shares(tmp_path: Path) -> None:
    rows = [{"text": row["body"]} for row in comments()]
    as_lines(tmp_path / "reddit.jsonl", rows)
    raw = reddit(tmp_path, partition="iid", author=None, body="text", clients=4)
    sizes = [[len(getattr(c, side)) for c in raw.clients] for side in ("train", "validation", "test")]
    assert all(max(shares) - min(shares) <= 1 for shares in sizes)
    assert sum(map(sum, sizes)) == 70 * 2 + 3  # without a column of users nobody knows whose account was deleted
    assert 7 <= sum(sizes[1]) <= 7 * 2
    every = [text for side in ("train", "validation", "test") for share in texts(raw, side) for text in share]
    assert len(set(numbers(every))) == 40
    assert Counter(numbers(every)).total() == 70
    everyone = prepare(RedditCorpus(clients=4, partition="iid", author=None, body="text"), Embedding(), 0, tmp_path)
    assert everyone.report[0].tokens == tuple(
        sum(len(text.split()) - 1 for text in split.texts)
        for split in (raw.clients[0].train, raw.clients[0].validation, raw.clients[0].test)
    )


def test_too_few_writers_are_refused(tmp_path: Path) -> None:
    as_lines(tmp_path / "reddit.jsonl", comments())
    with pytest.raises(UserError, match="4 users are needed, but only 3 have at least 10 comments"):
        reddit(tmp_path, clients=4)
    with pytest.raises(UserError, match="3 users are needed, but only 2 have at least 11 comments"):
        reddit(tmp_path, clients=3, min_comments=11)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"author": None}, "users needs the column of the user"),
        ({"partition": "iid", "min_comments": 5}, "iid uses the comments of all users"),
        ({"order": "date"}, "order: it needs the column of the date: name it with date"),
        ({"since": "2015-05-01"}, "since: it needs the column of the date"),
        ({"date": "created_utc"}, "date: nothing reads the column: set order: date, since or until"),
        ({"date": "d", "test_from": "2015-05-01"}, "test_from: comments are split by their dates: set order: date"),
        ({"date": "d", "since": "2015-05", "until": "2015-05-01"}, "until: it has to be later than since"),
        ({"date": "d", "since": "2015"}, "'2015' is no date: write one in ISO 8601 such as 2015-05-01"),
        ({"date": "d", "since": 1430438400}, "1430438400 is no date: write one in ISO 8601 such as 2015-05-01"),
        ({"date": "d", "since": "May"}, "'May' is no time from 1970 to 9999"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        RedditCorpus(**options)


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("a.txt", "x", "a.txt is none of .parquet, .csv"),
        ("a.jsonl", '{"author": "a", "body": "b"}\n{"author":', r"a\.jsonl cannot be read as jsonl"),
        (
            "a.jsonl",
            '{"author": "a", "text": "b"}',
            r"row 1: no column 'body', only author, text: name it .*corpus\.bo",
        ),
        ("a.csv", "user,body\na,b\n", r"row 1: no column 'author', only user, body: name it with corpus\.author"),
        ("a.csv", "author,body\na,b\na,I like tea, and coffee\n", "row 2: 3 fields, but the header has 2: put a text"),
        (
            "a.csv",
            "author;body\na;I like tea, and coffee\n",
            "no column 'body', only author;body: its columns",
        ),
        ("a.csv", "author,body\na,b\nc\n", "row 2: 1 fields, but the header has 2"),
        ("a.csv", 'author,body\na,"not closed\nb,next\n', r"a\.csv cannot be read as csv \(unexpected end of data\)"),
        ("a.csv", "author,body,body\na,b,c\n", "a.csv has 2 columns 'body': rename one"),
        ("a.json", "[1]", "row 1: not an object"),
        ("a.json", "[" * 100_000, r"a\.json cannot be read as json \(.*recursion.*\): repair or fetch it again"),
        ("a.jsonl", '{"author": "a", "body": ' + "1" * 5_000 + "}", r"a\.jsonl cannot be read as jsonl \(Exceeds the"),
        ("a.parquet", "no table", "cannot be read as parquet"),
    ],
)
def test_faulty_files_are_named(tmp_path: Path, file: str, content: str, complaint: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=complaint):
        reddit(tmp_path, file=file)


def test_a_missing_file_of_comments_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"corpus\.file: no reddit\.jsonl, in a folder reddit or not, in {tmp_path}"):
        reddit(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"")
    pq.write_table(pa.table({"x": ["a"], "author": ["b"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="no column 'body', only x, author"):
        reddit(tmp_path, file="a.parquet")
