"""Each problem of a user's table or of its files is reported in one sentence."""

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fedtext.corpora.table import TableCorpus
from tests.fedtext.corpora.tables import KEYS, REVIEWS, complaint, content, read, write

Change = Callable[[dict[str, list[Any]]], dict[str, list[Any]]]


@pytest.mark.parametrize(
    ("change", "keys", "said"),
    [
        (dict, {"label": "star"}, "corpus.label: {path} has no column 'star', only text, stars, shop, fold: did you"),
        (dict, {"text": "texts"}, "corpus.text: {path} has no column 'texts', only text, stars, shop, fold: did you"),
        (dict, {"column": "texts"}, "corpus.column: {path} has no column 'texts', only text, stars, shop, fold: did"),
        (dict, {"text": "words", "column": "texts"}, "corpus.column: {path} has no column 'texts', only text, stars"),
        (lambda c: c | {"note": [None] * 48}, {"text": "note"}, "corpus.text: {path}: 48 rows have no value in the"),
        (lambda c: c | {"note": [None] * 48}, {"column": "note"}, "corpus.column: {path}: 48 rows have no value in"),
        (dict, {"client": "user"}, "corpus.client: {path} has no column 'user', only"),
        (dict, {"split": "shop"}, "corpus.split: {path}: 'east', 'north', 'south' in the column 'shop' is not the"),
        (dict, {"label": "text"}, "corpus.label: the column 'text' of {path} has 48 labels in 48 rows, too"),
        (dict, {"folders": ("user", "label")}, "corpus.folders: {path} is not a folder of .txt files: leave it out"),
        (lambda c: c | {"stars": [1] * 48}, {}, "corpus.label: {path} has only the label '1': a classifier needs two"),
        (
            lambda c: c | {"fold": ["test"] * 8 + c["fold"][8:]},
            {"split": "fold"},
            None,
        ),
        (
            lambda c: c | {"fold": ["test" if s == "east" else "train" for s in c["shop"]]},
            {"split": "fold"},
            "corpus.client: client 'east' has no train text: mark such rows in the column of the splits, or set",
        ),
        (
            lambda c: c | {"fold": ["test"] * 48},
            {"split": "fold"},
            "corpus.client: 3 clients have no train text, the first is 'east': mark such rows",
        ),
        (lambda c: c | {"fold": ["train"] * 48}, {"split": "fold", "client": None}, "corpus.split: {path} has no test"),
        (
            lambda c: c | {"fold": ["train", "trian", "tset", *c["fold"][3:]]},
            {"split": "fold"},
            "corpus.split: {path}: 'trian', 'tset' in the column 'fold' is not the name of a split: write train, test, "
            "validation, unlabeled (or valid, val, dev), or set corpus.split to the share of test texts, 0.2",
        ),
        (lambda c: {k: [] for k in c}, {}, "{path} is empty|holds no rows"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_is_wrong_with_a_table_is_one_sentence(
    tmp_path: Path, change: Change, keys: dict[str, Any], said: str | None, suffix: str
) -> None:
    path = write(tmp_path / f"r{suffix}", change(REVIEWS))
    asked = {"label": "stars", "client": "shop", "split": 0.25} | keys
    if said is None:
        assert len(read(path, **asked).clients) == 3
    elif "|" in said:
        assert any(part.format(path=path) in complaint(path, **asked) for part in said.split("|"))
    else:
        assert said.format(path=path) in complaint(path, **asked)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("key", ["column", "label", "client", "split"])
@pytest.mark.parametrize("nothing", [None, " "])
def test_rows_that_lack_a_value_are_refused_or_dropped(
    tmp_path: Path, suffix: str, key: str, nothing: str | None
) -> None:
    names = {"column": "text", "label": "stars", "client": "shop", "split": "fold"}
    values = [*map(str, REVIEWS[names[key]])]
    values[6] = values[20] = nothing  # type: ignore[call-overload]
    path = write(tmp_path / f"r{suffix}", REVIEWS | {names[key]: values})
    assert complaint(path, **KEYS) == (
        f"corpus.{key}: {path}: 2 rows have no value in the column {names[key]!r} (first: {path}, row 7): complete "
        "them, or leave them out with corpus.missing: drop"
    )
    raw = read(path, missing="drop", **KEYS)
    whole = read(write(tmp_path / "whole.csv", {k: [v for n, v in enumerate(c) if n not in (6, 20)]
                                               for k, c in REVIEWS.items()}), **KEYS)  # fmt: skip
    assert content(raw) == content(whole)
    alone = write(tmp_path / f"s{suffix}", {"text": ["a", "b", "c"], "label": ["1", "", "0"]})
    assert "1 row has no value in the column 'label' " in complaint(alone)
    assert "row 2" in complaint(alone)


@pytest.mark.parametrize(
    ("file", "written", "said"),
    [
        ("r.csv", b"text,label\na,1\nb, c,0\n", "{path}, row 2: 3 fields, but the header has 2: put a text"),
        ("r.tsv", b"text\tlabel\na\t1\nb\n", "{path}, row 2: 1 fields, but the header has 2: put a text that"),
        ("r.csv", b'text,label\n"a\nb",1\nc\n', "{path}, row 2: 1 fields, but the header has 2"),
        ("r.csv", b"text,label\na,1\ncaf\xe9,0\n", "{path}, line 3, byte 4: 0xe9 is not UTF-8: convert the file"),
        ("r.jsonl", b'{"text": "a", "label": 1}\n{"text": "\xe9", "label": 1}\n', "{path}, line 2, byte 11: 0xe9 is"),
        ("r.csv", b"", "{path} is empty: write rows into it, below a header"),
        ("r.csv", b"text,label\n", "corpus.path: {path} holds no rows: add some"),
        ("r.jsonl", b"\n\n", "{path} is empty: write rows into it"),
        ("r.csv", b"text,label,text\na,1,b\n", "corpus.column: {path} has 2 columns 'text': rename one"),
        ("r.jsonl", b'{"text": "a", "label": 1}\n\n{"text": "b" "label": 0}\n', "{path}, line 3: not JSON (Expecting"),
        ("r.jsonl", b'{"text": "a", "label": 1}\n7\n', "{path}, line 2: not a JSON object; each line must be"),
        ("r.json", b'[{"text": "a", "label": 1}]\n', "or split a whole array into lines (jq -c '.[]' r.json)"),
        ("r.jsonl", b'{"text": "a", "label": 1}\n{"text": "b", "label": "x"}\n', "{path}, line 2: column 'label' has"),
        ("r.jsonl", b'{"text": ["a"], "label": 1}\n', "column 'text' must contain texts, and its type is list<"),
        ("r.jsonl", b'{"text": "a", "label": 1}\n{"text": ["a"], "label": 1}\n', "{path}, line 2: column 'text' has"),
        ("r.jsonl", b'{"text": "\\ud83d", "label": 1}\n', "{path}, line 1: column 'text' has '\\ud83d', with"),
        ("r.jsonl", b'{"text": "a", "label": 1}\n{"text": "b", "label": 1, "label": 0}\n', "{path}, line 2: the name"),
        ("r.jsonl", b'{"text": "a", "label": 1}\n{"text": "b", "label": 9223372036854775808}\n', "{path}, line 2: co"),
        ("r.jsonl", b'{"text": "a", "label": -9223372036854775809}\n', "a whole number of more than 64 bits: write it"),
        ("r.csv", b'text,label\na,0\n"b,1\nc,0\n"d",1\n', "{path}, row 2: a quotation mark begins a field and none"),
        ("r.tsv", b'text\tlabel\n"a" b\t0\nc\t1\n', "{path}, row 1: a quotation mark begins a field"),
        ("r.csv", b'text,label,"a" b\na,0,c\nb,1,d\n', "{path}, header: a quotation mark begins a field"),
        ("r.parquet", b"PAR1", "{path} cannot be read as parquet ("),
        ("r.xlsx", b"PK", "corpus.path: {path} is none of .csv, .tsv, .jsonl, .ndjson, .json, .parquet, .arrow"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, file: str, written: bytes, said: str) -> None:
    (tmp_path / file).write_bytes(written)
    assert said.format(path=tmp_path / file) in complaint(tmp_path / file)


def test_other_names_may_be_there_twice_and_fractions_may_be_large(tmp_path: Path) -> None:
    lines = ['{"text": "a", "label": 0.5, "x": 1, "x": 2}', '{"text": "b", "label": 9223372036854775808}']
    (tmp_path / "r.jsonl").write_text("\n".join(lines * 4))
    assert read(tmp_path / "r.jsonl", clients=1, split=0.5).classes == 2


@pytest.mark.parametrize("key", ["label", "client"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime.date(2020, 1, 2), "date32[day]"),
        (datetime.datetime(2020, 1, 2), "timestamp[us]"),
        (datetime.time(1), "time64[us]"),
        (Decimal("1.5"), "decimal128(2, 1)"),
    ],
)
def test_columns_of_dates_times_and_decimals_are_to_be_texts(tmp_path: Path, key: str, value: Any, kind: str) -> None:
    columns = {"text": ["a", "b"], "label": [0, 1], "client": ["x", "x"]} | {key: [value] * 2}
    path = write(tmp_path / "r.parquet", columns)
    assert complaint(path, client="client") == (
        f"{path}: column {key!r} must contain texts, and its type is {kind}: write it as text, as "
        f"df[{key!r}].astype(str) of pandas is"
    )


def test_a_quotation_mark_within_a_field_is_a_character(tmp_path: Path) -> None:
    said = ['5" of "it"', 'a "b"', "c,\r\nd", "e" * 200_000]
    written = f'text,label\n{said[0]},1\n"a ""b""",0\n"{said[2]}",1\n"{said[3]}",0\n'
    (tmp_path / "r.csv").write_bytes(written.encode())
    raw = read(tmp_path / "r.csv", clients=1, split=0.5)
    texts = [text for side in (raw.clients[0].train, raw.clients[0].test) for text in side.texts]
    assert sorted(texts) == sorted(said)


def test_a_line_that_is_no_json_is_named_far_into_a_file(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "a", "label": n % 2}) for n in range(3000)]
    (tmp_path / "r.jsonl").write_text("\n".join([*lines, "{", *lines]))
    assert complaint(tmp_path / "r.jsonl").startswith(f"{tmp_path}/r.jsonl, line 3001: not JSON (")


def test_a_folder_without_tables_says_what_it_may_hold(tmp_path: Path) -> None:
    assert f"{tmp_path} has no file of .csv, .tsv" in complaint(tmp_path)
    write(tmp_path / "a.csv", REVIEWS)
    write(tmp_path / "b.parquet", REVIEWS)
    assert "has files of several formats, .csv, .parquet, and no .txt file" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"label": None},
            "a classifier needs a column of labels: name it; texts without labels are for a language model",
        ),
        ({"client": "shop", "clients": 4}, "clients: the column client assigns texts to clients: leave clients out"),
        ({"client": "shop", "partition": "dirichlet"}, "partition: the column client assigns"),
        ({"min_texts": 4}, "min_texts: client names no column: leave min_texts out"),
        ({"partition": "natural"}, "there is no natural partition: name the column of the clients with client"),
        ({"split": 1}, "1 is not a share of test texts: give a number between 0 and 1"),
        ({"split": True}, "Input should be a valid number"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TableCorpus(path="r.csv", **keys)
