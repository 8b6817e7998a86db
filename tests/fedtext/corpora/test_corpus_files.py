"""What corpora say of files that are not as they should be: not UTF-8, of other types, or not there."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedtext.corpora import CORPORA, hub
from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.files import read_table
from fedtext.errors import UserError
from tests.fedtext.corpora.test_movielens import write_1m, write_latest

BAD = b"caf\xe9 noir"  # Windows-1252: byte 4 of it
SPLITS = ["train", "test"] * 4
LABELLED = {"split": SPLITS, "label": [0, 0, 1, 1] * 2, "text": [f"text {n}" for n in range(8)]}
FDU = LABELLED | {"domain": ["books"] * 8}
LINES = {"split": ["train", "valid", "test"], "text": ["a b", "c d", "e f"]}
COMMENTS = {"author": ["a"] * 12, "body": [f"comment {n}" for n in range(12)]}


def strings(values: list[Any], bad: bytes | None = None) -> pa.Array:
    """A column of texts whose last one is ``bad``, which Arrow takes unread."""
    raw = [value.encode() for value in values]
    return pa.array([*raw[:-1], raw[-1] if bad is None else bad], pa.binary()).view(pa.string())


TABLES: dict[str, tuple[CorpusConfig, str, dict[str, Any], str]] = {
    "fdu": (CORPORA["fdu"](), "fdu_mtl.parquet", FDU, "text"),
    "imdb": (CORPORA["imdb"](clients=1), "imdb.parquet", LABELLED, "text"),
    "newsgroups20": (CORPORA["newsgroups20"](clients=1), "newsgroups20.parquet", LABELLED, "text"),
    "agnews": (CORPORA["agnews"](clients=1), "ag_news.parquet", LABELLED, "text"),
    "sst2": (CORPORA["sst2"](clients=1), "sst2.parquet", LABELLED, "text"),
    "ptb": (CORPORA["ptb"](clients=1), "ptb.parquet", LINES, "text"),
    "wikitext2": (CORPORA["wikitext2"](clients=1), "wikitext2.parquet", LINES, "text"),
    "reddit": (CORPORA["reddit"](clients=1, file="reddit.parquet"), "reddit.parquet", COMMENTS, "body"),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda texts: strings(texts), None),
        (lambda texts: strings(texts).cast(pa.large_string()), None),
        (lambda texts: strings(texts).dictionary_encode(), None),
        (lambda texts: strings(texts).cast(pa.binary()), None),
        (lambda texts: strings(texts, BAD), "row {last}, column '{column}', byte 4: 0xe9 is not UTF-8: convert"),
        (lambda texts: strings(texts, BAD).view(pa.binary()), "row {last}, column '{column}', byte 4: 0xe9 is not"),
        (lambda texts: [[text] for text in texts], r"column '{column}' must contain texts, and its type is list<"),
        (lambda texts: list(range(len(texts))), "column '{column}' must contain texts, and its type is int64"),
        (
            lambda texts: [{"a": text} for text in texts],
            r"column '{column}' must contain texts, and its type is struct<",
        ),
    ],
    ids=["strings", "large strings", "dictionary", "bytes", "not UTF-8", "bytes not UTF-8", "lists", "ints", "structs"],
)
def test_a_column_of_texts_must_be_one(
    tmp_path: Path, name: str, change: Callable[[list[str]], Any], complaint: str | None
) -> None:
    config, file, columns, column = TABLES[name]
    pq.write_table(pa.table(columns | {column: change(columns[column])}), tmp_path / file)
    if complaint is None:
        assert config.read(tmp_path, 0).clients
        return
    with pytest.raises(UserError, match=complaint.format(last=len(columns[column]), column=column)) as caught:
        config.read(tmp_path, 0)
    assert str(tmp_path / file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["fdu", "imdb"])
@pytest.mark.parametrize("labels", [[[0]] * 8, ["good"] * 8, [0.5] * 8], ids=["lists", "words", "fractions"])
def test_a_column_of_labels_must_be_one(tmp_path: Path, name: str, labels: list[Any]) -> None:
    config, file, columns, _ = TABLES[name]
    pq.write_table(pa.table(columns | {"label": labels}), tmp_path / file)
    with pytest.raises(UserError, match=f"{file} cannot be read as parquet"):
        config.read(tmp_path, 0)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b'text,label\n"great" he said,1\nbad,0\n', "row 1: a quotation mark begins a field and none ends it"),
        (b'text,label\ngood,1\n"bad,0\nfine,1\n', "row 2: a quotation mark begins a field and none ends it"),
        (b"", "cannot be read as csv"),
    ],
)
def test_quotation_marks_of_csv_are_strict(tmp_path: Path, written: bytes, said: str) -> None:
    (tmp_path / "r.csv").write_bytes(written)
    with pytest.raises(UserError, match=said):
        read_table(tmp_path / "r.csv", {"text": "string", "label": "int64"})
    (tmp_path / "r.csv").write_bytes(b'text,label\n"""great"" he, ""said""",1\n5" long,0\n')
    assert read_table(tmp_path / "r.csv", {"text": "string"})["text"].to_pylist() == ['"great" he, "said"', '5" long']


def lines_of(side: str, good: bytes) -> dict[str, bytes]:
    return {name: good + (BAD + b"\n") * (name == side) for name in ("train", "valid", "test")}


@pytest.mark.parametrize("side", ["train", "valid", "test"])
@pytest.mark.parametrize(("name", "file"), [("ptb", "ptb.{}.txt"), ("wikitext2", "wiki.{}.tokens")])
def test_lines_that_are_not_utf8_are_named(tmp_path: Path, name: str, file: str, side: str) -> None:
    for which, content in lines_of(side, b"a b\nc d\n").items():
        (tmp_path / file.format(which)).write_bytes(content)
    with pytest.raises(UserError, match=r"line 3, byte 4: 0xe9 is not UTF-8: convert the file .*iconv") as caught:
        CORPORA[name](clients=1).read(tmp_path, 0)
    assert file.format(side) in str(caught.value)


def test_reviews_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    for source, top in (("imdb", 10), ("yelp-2013", 5), ("yelp-2014", 5)):
        for side in ("train", "test"):
            (tmp_path / f"{source}-{side}.txt.ss").write_bytes(b"u\t\tp\t\t%d\t\tfine\n" % top)
    CORPORA["iyy"]().read(tmp_path, 0)
    (tmp_path / "yelp-2014-test.txt.ss").write_bytes(b"u\t\tp\t\t1\t\tfine\nu\t\tp\t\t1\t\t" + BAD + b"\n")
    with pytest.raises(UserError, match=r"yelp-2014-test\.txt\.ss, line 2, byte 13: 0xe9 is not UTF-8"):
        CORPORA["iyy"]().read(tmp_path, 0)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("reddit.csv", b"author,body\na,one\na," + BAD + b"\n"),
        ("reddit.jsonl", b'{"author": "a", "body": "one"}\n\n{"author": "a", "body": "' + BAD + b'"}\n'),
        ("reddit.json", b'[{"author": "a", "body": "one"},\n\n{"author": "a", "body": "' + BAD + b'"}]\n'),
    ],
)
def test_comments_that_are_not_utf8_are_named(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=rf"{file}, line 3, byte \d+: 0xe9 is not UTF-8"):
        CORPORA["reddit"](clients=1, file=file).read(tmp_path, 0)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    rows = [{"author": "a", "body": f"word{n}"} for n in range(12)]
    (tmp_path / "reddit.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8-sig")
    (tmp_path / "reddit.json").write_text(json.dumps(rows), encoding="utf-8-sig")
    for file in ("reddit.jsonl", "reddit.json"):
        (client,) = CORPORA["reddit"](clients=1, file=file).read(tmp_path, 0).clients
        assert "<s> word0 </s>" in [*client.train.texts, *client.validation.texts, *client.test.texts]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (["a"], "must be a text, not list"),
        (7, "must be a text, not int"),
        ({"a": 1}, "must be a text, not dict"),
        ("\ud800", "has half of a character"),
    ],
)
def test_a_comment_must_be_a_text(tmp_path: Path, body: Any, complaint: str) -> None:
    (tmp_path / "reddit.jsonl").write_text(json.dumps({"author": "a", "body": body}))
    with pytest.raises(UserError, match=rf"reddit\.jsonl, row 1: column 'body' {complaint}"):
        CORPORA["reddit"](clients=1).read(tmp_path, 0)


@pytest.mark.parametrize("file", ["movies.csv", "tags.csv"])
def test_films_that_are_not_utf8_are_named(tmp_path: Path, file: str) -> None:
    path = write_latest(tmp_path, "csv") / file
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b",", b",\xe9", 2), *lines[2:]]))
    with pytest.raises(UserError, match=rf"{file}, line 2, byte \d+: 0xe9 is not UTF-8"):
        CORPORA["movielens"](clients=1).read(tmp_path, 0)


def test_keywords_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    write_latest(tmp_path, "csv")
    (tmp_path / "keywords.txt").write_bytes(b"10\thero\n11\t" + BAD + b"\n")
    with pytest.raises(UserError, match=r"keywords\.txt, line 2, byte 7: 0xe9 is not UTF-8"):
        CORPORA["movielens"](clients=1, keywords="keywords.txt").read(tmp_path, 0)


def test_a_film_of_ml_1m_may_have_any_byte_in_its_title(tmp_path: Path) -> None:
    path = write_1m(tmp_path) / "movies.dat"
    path.write_bytes(path.read_bytes().replace(b"::", b"::\xe9", 1))
    assert any("é" in text for client in CORPORA["movielens"](release="ml-1m", clients=1).read(tmp_path, 0).clients
               for text in (*client.train.texts, *client.test.texts))  # fmt: skip


# Files that are not there

HUB = {
    "agnews": ({}, "ag_news.parquet", "fancyzhx/ag_news"),
    "sst2": ({}, "sst2.parquet", "stanfordnlp/sst2"),
    "newsgroups20": ({"strip": ["headers", "footers", "quotes"]}, "newsgroups20.parquet", "SetFit/20_newsgroups"),
    "wikitext2": ({}, "wikitext2.parquet", "Salesforce/wikitext"),
}


@pytest.mark.parametrize("name", HUB)
@pytest.mark.parametrize("named", ["data", "FEDTEXT_DATA"])
def test_a_folder_that_was_named_must_have_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, named: str
) -> None:
    """The hub is not asked at all."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("the hub was asked"))
    monkeypatch.setattr(hub, "_unreached", lambda: pytest.fail("the hub was asked"))
    options, file, dataset = HUB[name]
    if named == "FEDTEXT_DATA":
        monkeypatch.setenv("FEDTEXT_DATA", str(tmp_path))
    with pytest.raises(UserError) as caught:
        CORPORA[name](**options).read(tmp_path if named == "data" else None, 0)
    said = str(caught.value)
    assert said.startswith(f"corpus {name}: no {file}")
    assert f"in {tmp_path}" in said
    assert f"or neither of them to read {dataset} from the hub" in said


@pytest.mark.parametrize("name", sorted(set(CORPORA) - {"demo", "forum"} - set(HUB)))
def test_other_corpora_name_the_file_that_was_looked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"no .*in {tmp_path}"):
        CORPORA[name](**({"path": "reviews.csv"} if name in ("table", "instructions") else {})).read(tmp_path, 0)


@pytest.mark.parametrize("name", HUB)
def test_a_hub_that_cannot_be_reached_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """The hub's own client would try again five times, and wait in between."""
    pytest.importorskip("datasets")
    from huggingface_hub import constants

    with socket.socket() as nobody:  # bound, and no one listens there
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path))
        monkeypatch.delenv("FEDTEXT_DATA", raising=False)
        before = constants.HF_HUB_OFFLINE
        options, file, dataset = HUB[name]
        with pytest.raises(UserError) as caught:
            CORPORA[name](**options).read(None, 0)
    said = str(caught.value)
    assert said.startswith(f"corpus {name}: there is no {file}")
    assert f"{dataset} on the hub, which was not reached within 5 s (" in said
    assert "give the file's folder with data=FOLDER" in said
    assert "\n" not in said
    assert "Retrying" not in caplog.text
    assert before == constants.HF_HUB_OFFLINE
