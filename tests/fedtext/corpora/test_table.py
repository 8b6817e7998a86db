"""The corpus ``table``: texts of a person's own, in files of several formats."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import ValidationError

from fedtext.__main__ import main
from fedtext.config import files
from fedtext.corpora import hub, table_files
from fedtext.corpora.prepare import prepare
from fedtext.corpora.splits import held_out
from fedtext.corpora.statistics import render
from fedtext.corpora.table import TableCorpus
from fedtext.corpora.table_parts import ordered
from fedtext.corpora.types import RawCorpus, Split
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.state.fingerprint import fingerprint
from tests import tiny
from tests.loops import nonempty

SIDES = ("train", "validation", "test")
REVIEWS = {
    "text": [f'say "{word}", {n}\nand more é' for n, word in enumerate(["good", "bad", "fine", "poor"] * 12)],
    "stars": [10, 2, 10, 1] * 12,
    "shop": (["north"] * 4 + ["south"] * 4 + ["east"] * 4) * 4,
    "fold": ["train"] * 24 + ["Test"] * 12 + ["dev"] * 12,
}
KEYS: dict[str, Any] = {"label": "stars", "client": "shop", "split": "fold", "validation": 1.0}


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    """A table in the format that its name asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix in (".csv", ".tsv"):
        options = pcsv.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        pcsv.write_csv(pa.table(columns), path, options)
    else:
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def read(path: Path | str, seed: int = 0, data: Path | None = None, **keys: Any) -> RawCorpus:
    return TableCorpus(path=str(path), **keys).read(data, seed)


def content(raw: RawCorpus) -> Any:
    """All that a corpus holds, to compare."""
    return raw.labels, [
        (c.name, *((getattr(c, side).texts, getattr(c, side).labels.tolist()) for side in SIDES)) for c in raw.clients
    ]


def texts(raw: RawCorpus, side: str) -> list[str]:
    return [text for client in raw.clients for text in getattr(client, side).texts]


def complaint(path: Path | str, **keys: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(path, **keys)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What is read


def test_the_columns_are_read_by_their_names(tmp_path: Path) -> None:
    raw = read(write(tmp_path / "r.csv", REVIEWS), **KEYS)
    assert raw.labels == ("1", "2", "10")
    assert raw.classes == 3
    assert [client.name for client in raw.clients] == ["east", "north", "south"]
    for client in nonempty(raw.clients):
        for side, folds in zip(SIDES, (["train"], ["dev"], ["Test"]), strict=True):
            rows = [n for n in range(48) if REVIEWS["shop"][n] == client.name and REVIEWS["fold"][n] in folds]
            split = getattr(client, side)
            assert split.texts == [REVIEWS["text"][n] for n in rows]
            assert [raw.labels[label] for label in split.labels] == [str(REVIEWS["stars"][n]) for n in rows]


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl", ".ndjson", ".json", ".parquet"])
@pytest.mark.parametrize("labels", [[10, 2], ["ten", "two"], [True, False]], ids=["numbers", "words", "booleans"])
def test_every_format_gives_the_same_corpus(tmp_path: Path, suffix: str, labels: list[Any]) -> None:
    columns = REVIEWS | {"stars": labels * 24, "shop": [3, 20, 100] * 16}
    for keys in (KEYS, {"label": "stars", "split": 0.25, "clients": 3}):
        first = read(write(tmp_path / "a.csv", columns), **keys)
        assert content(read(write(tmp_path / f"b{suffix}", columns), **keys)) == content(first)
    assert first.labels == {10: ("2", "10"), "ten": ("ten", "two"), True: ("false", "true")}[labels[0]]
    made = [
        prepare(TableCorpus(path=str(tmp_path / name), **KEYS), Embedding(), 0, None) for name in os.listdir(tmp_path)
    ]
    assert len({corpus.digest for corpus in made}) == 1
    assert made[0].labels == first.labels
    assert f"labels: 0 is {first.labels[0]}, 1 is {first.labels[1]}." in render(made[0])


def test_python_s_booleans_are_those_of_other_formats(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("text,label\n" + "".join(f"t{n},{n % 2 == 0}\n" for n in range(20)))
    assert read(tmp_path / "r.csv", clients=1).labels == ("false", "true")


def test_a_label_that_is_not_a_number_is_missing(tmp_path: Path) -> None:
    """Tools that know no missing integers write them as NaN among floats."""
    columns = {"text": [f"t{n}" for n in range(20)], "label": [float("nan"), 2.0, 10.0, 4.5] * 5}
    path = write(tmp_path / "r.parquet", columns)
    assert "5 rows have no value in the column 'label' (first: " in complaint(path)
    assert read(path, missing="drop", clients=1).labels == ("2", "4.5", "10")


def test_a_file_is_read_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write(tmp_path / f"r{suffix}", REVIEWS) for suffix in (".csv", ".jsonl")]
    whole = content(read(paths[0], **KEYS))
    monkeypatch.setattr(table_files, "_BLOCK", 200)
    for path in paths:
        assert content(read(path, **KEYS)) == whole
    paths[0].write_text(paths[0].read_text() + "a,b\n")
    assert f"{paths[0]}, row 49: 2 fields, but the header has 4" in complaint(paths[0], **KEYS)


def test_classes_and_clients_have_an_order() -> None:
    assert ordered({"10", "9", "-1", "2.5"}) == ["-1", "2.5", "9", "10"]
    assert ordered({"b", "10", "9", "B"}) == ["10", "9", "B", "b"]
    large = ["99999999999999999998", "100000000000000000001"]  # the same as floats
    assert ordered(large) == large


def test_a_text_may_be_called_like_its_representation(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", {"words": REVIEWS["text"], "label": REVIEWS["stars"]})
    by_column = TableCorpus(path=str(path), column="words", text="hash", clients=2)  # type: ignore[arg-type]
    assert by_column.text.name == "hash"
    assert len(texts(by_column.read(None, 0), "train")) == 38
    path = write(tmp_path / "s.csv", {"review": REVIEWS["text"], "label": REVIEWS["stars"]})
    by_text = TableCorpus(path=str(path), text="review", clients=2)  # type: ignore[arg-type]
    assert by_text.column == "review"
    assert by_text.text.name == "words"
    assert len(texts(by_text.read(None, 0), "train")) == 38
    with pytest.raises(ValidationError, match="column: text and column name different columns"):
        TableCorpus(path="r.csv", text="a", column="b")  # type: ignore[arg-type]


def test_json_lines_need_not_agree_in_what_is_not_read(tmp_path: Path) -> None:
    rows = [{"text": "2020-01-01", "label": n % 2, "votes": n if n % 3 else "many"} for n in range(12)]
    rows[0]["text"], rows[1]["label"] = "a day", None
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8-sig")
    raw = read(tmp_path / "r.jsonl", missing="drop", clients=1)
    assert sorted(texts(raw, "train") + texts(raw, "test")) == ["2020-01-01"] * 10 + ["a day"]


# Folders, lists and the hub


def test_folders_of_texts_are_columns(tmp_path: Path) -> None:
    for n in range(12):
        path = tmp_path / "texts" / f"user{n % 3}" / ("pos" if n % 2 else "neg") / f"{n}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {n}", encoding="utf-8-sig" if n == 0 else "utf-8")
    (tmp_path / "texts" / "readme.txt").write_text("no text of the corpus")
    raw = read(tmp_path / "texts", folders=("user", "label"), client="user", split=0.5)
    assert raw.labels == ("neg", "pos")
    for number, client in nonempty(enumerate(raw.clients)):
        assert client.name == f"user{number}"
        assert sorted([*client.train.texts, *client.test.texts]) == sorted(
            f"text {n}" for n in range(12) if n % 3 == number
        )
        assert [int(text.split()[1]) % 2 for text in client.train.texts] == client.train.labels.tolist()
    said = complaint(tmp_path / "texts")
    assert said.startswith(f"corpus.folders: {tmp_path}/texts/user0/neg/0.txt is 2 folders deep")
    assert "has no column 'who', only text, user, label" in complaint(
        tmp_path / "texts", folders=("user", "label"), client="who"
    )
    (tmp_path / "texts" / "user1" / "pos" / "1.txt").write_bytes(b"caf\xe9")
    said = complaint(tmp_path / "texts", folders=("user", "label"), client="user")
    assert "user1/pos/1.txt, byte 4: 0xe9 is not UTF-8" in said
    (tmp_path / "texts" / "user1" / "pos" / "1.txt").write_text(" \n")
    said = complaint(tmp_path / "texts", folders=("user", "label"), client="user")
    assert "1 row has no value in the column 'text'" in said
    assert "user1/pos/1.txt)" in said


def test_the_order_of_a_folder_is_that_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "a", "c"):
        write(tmp_path / f"{name}.csv", {"text": [f"{name}{n}" for n in range(8)], "label": [0, 1] * 4})
    first = read(tmp_path, clients=2)
    scanned = os.scandir

    class Reversed:
        def __init__(self, *path: Any) -> None:
            with scanned(*path) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self) -> Any:
            return iter(self.entries)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", Reversed)
    assert content(read(tmp_path, clients=2)) == content(first)
    listed = TableCorpus(path=tuple(str(tmp_path / f"{name}.csv") for name in "abc"), clients=2).read(None, 0)
    assert content(listed) == content(first)


def test_the_names_of_files_are_columns(tmp_path: Path) -> None:
    """A file for each client, or for each split."""
    for name in ("train", "test-00000-of-00001"):
        write(tmp_path / "splits" / f"{name}.csv", {"text": [f"{name} {n}" for n in range(8)], "label": [0, 1] * 4})
    raw = read(tmp_path / "splits", clients=2)
    assert sorted(texts(raw, "train")) == [f"train {n}" for n in range(8)]
    assert len(texts(read(tmp_path / "splits", clients=2, split=0.25), "train")) == 12
    for name in ("oslo", "rome"):
        write(tmp_path / "towns" / f"{name}.jsonl", {"text": [f"{name} {n}" for n in range(8)], "label": [0, 1] * 4})
    raw = read(tmp_path / "towns", client="file", split=0.25)
    assert [client.name for client in raw.clients] == ["oslo", "rome"]
    assert all(nonempty(text.startswith(client.name) for client in raw.clients for text in client.train.texts))
    write(tmp_path / "splits" / "extra.csv", {"text": ["a"], "label": [0]})
    assert "'extra.csv' in the column 'split' is not the name of a split" in complaint(tmp_path / "splits")


def test_a_data_set_that_was_saved_is_read_with_the_names_of_its_classes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {"text": [f"t{n}" for n in range(12)], "label": [1, 0, 1] * 4}
    made = datasets.Dataset.from_dict(columns).cast_column("label", datasets.ClassLabel(names=["sad", "glad"]))
    other = datasets.Dataset.from_dict({"text": ["x"] * 4, "label": [-1] * 4}).cast(made.features)
    datasets.DatasetDict({"train": made, "test": made, "unsupervised": other}).save_to_disk(tmp_path / "saved")
    raw = read(tmp_path / "saved", clients=2, validation=0)
    assert raw.labels == ("glad", "sad")
    found = dict(zip(raw.clients[0].train.texts, raw.clients[0].train.labels.tolist(), strict=True))
    assert all(nonempty(label == (1 if int(text[1:]) % 3 == 1 else 0) for text, label in found.items()))
    assert len(texts(raw, "train")) == len(texts(raw, "test")) == 12
    assert len(TableCorpus(path=str(tmp_path / "saved")).read_unlabeled(None, 0)) == 4


def test_what_is_no_file_is_read_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    for split in ("train", "test"):
        write(
            tmp_path / "there" / f"{split}.parquet", {"text": [f"{split} {n}" for n in range(8)], "label": [0, 1] * 4}
        )
    load, asked = datasets.load_dataset, []

    def local(*names: str, **options: Any) -> Any:
        asked.append(names)
        return load(str(tmp_path / "there"), **options)

    monkeypatch.setattr(datasets, "load_dataset", local)
    monkeypatch.setattr(hub, "_unreached", lambda: None)
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDTEXT_DATA", raising=False)
    raw = read("someone/reviews:large", clients=2)
    assert asked == [("someone/reviews", "large")]
    assert sorted(texts(raw, "test")) == [f"test {n}" for n in range(8)]
    assert "or neither of them to read someone/reviews from the hub" in complaint("someone/reviews", data=tmp_path)
    assert "no someone/reviews.csv in" in complaint("someone/reviews.csv")
    assert len(asked) == 1


def test_a_path_is_looked_for_as_it_is_written_and_then_in_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, data = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    write(data / "r.csv", {"text": [f"data {n}" for n in range(8)], "label": [0, 1] * 4})
    monkeypatch.chdir(here)
    assert texts(read("r.csv", data=data, clients=1), "train")[0].startswith("data")
    write(here / "r.csv", {"text": [f"here {n}" for n in range(8)], "label": [0, 1] * 4})
    assert texts(read("r.csv", data=data, clients=1), "train")[0].startswith("here")
    (here / "r.csv").unlink()
    monkeypatch.setenv("FEDTEXT_DATA", str(data))
    assert texts(read("r.csv", clients=1), "train")[0].startswith("data")
    said = complaint("s.csv", data=data)
    assert said == (
        f"corpus.path: no s.csv in {here}, nor in {data}: correct it, or give its folder with data=FOLDER or "
        "$FEDTEXT_DATA"
    )


# Splits and clients


def test_texts_are_split_by_the_seed_client_by_client(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", REVIEWS)
    keys = {"label": "stars", "client": "shop", "split": 0.25}
    raw = read(path, **keys)
    for client in nonempty(raw.clients):
        assert (len(client.train), len(client.test)) == (12, 4)
        assert np.bincount(client.test.labels).tolist() == [1, 1, 2], "a quarter of each class"
        assert not set(client.train.texts) & set(client.test.texts)
    assert content(read(path, **keys)) == content(raw)
    assert content(read(path, seed=1, **keys)) != content(raw)
    first = TableCorpus(path=str(path), label="stars", client="shop", split=0.25, validation=0.25)
    assert [len(c.validation) for c in prepare(first, Embedding(), 0, None).clients] == [4, 4, 4], "of 3, 3 and 6"


def test_clients_of_few_texts_have_test_texts_too(tmp_path: Path) -> None:
    """One in five of each of two classes of two texts would be none."""
    columns = {"text": [f"t{n}" for n in range(40)], "label": [0, 1] * 20, "client": [n // 4 for n in range(40)]}
    raw = read(write(tmp_path / "r.csv", columns), client="client", split=0.2)
    assert [client.name for client in raw.clients] == [str(n) for n in range(10)]
    assert {(len(client.train), len(client.test)) for client in raw.clients} == {(3, 1)}


def test_copies_of_a_text_are_held_out_together() -> None:
    split = Split(["a", "a", "a", "b", "c", "d"], np.zeros(6, np.int64))
    for seed in range(20):
        held_N = held_out(split, 0.01, np.random.default_rng(seed), least=2)
        held = [text for text, out in zip(split.texts, held_N, strict=True) if out]
        assert len(held) <= 2
        assert "a" not in held
    assert not held_out(split, 0.01, np.random.default_rng(0)).any()


def test_validation_rows_are_read_only_if_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", REVIEWS)
    shares = {share: prepare(TableCorpus(path=str(path), **(KEYS | {"validation": share})), Embedding(), 0, None)
              for share in (0.0, 0.5, 1.0)}  # fmt: skip
    assert {share: [len(c.validation) for c in found.clients] for share, found in shares.items()} == {
        0.0: [0, 0, 0], 0.5: [2, 2, 2], 1.0: [4, 4, 4],
    }  # fmt: skip
    assert [len(c.train) for c in shares[1.0].clients] == [8, 8, 8]
    without = REVIEWS | {"fold": ["train"] * 36 + ["test"] * 12}
    held = TableCorpus(path=str(write(tmp_path / "s.csv", without)), **(KEYS | {"validation": 0.5}))
    assert [len(c.validation) for c in prepare(held, Embedding(), 0, None).clients] == [7, 7, 7], (
        "out of train: of 3, 3 and 6"
    )
    dealt = read(path, label="stars", split="fold", validation=0.5, clients=3)
    assert [len(client.validation) for client in dealt.clients] == [2, 2, 2]


def test_unlabeled_rows_are_read_apart_and_may_lack_all_but_a_text(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    rows = [f"t{n},{n % 2},a,{'train' if n % 3 else 'test'}" for n in range(9)]
    path.write_text("\n".join(["text,label,who,split", *rows, "t0,,,unlabelled", "new,,,unlabeled", ""]))
    asked = TableCorpus(path=str(path), client="who")
    raw = asked.read(None, 0)
    assert sorted(texts(raw, "train") + texts(raw, "test")) == [f"t{n}" for n in range(9)]
    assert [text.text for text in asked.read_unlabeled(None, 0)] == ["t0", "new"]
    dropped = prepare(asked.model_copy(update={"drop_leaked": "all"}), Embedding(), 0, None)
    assert dropped.report[0].leaks.unlabeled == 1
    assert len(dropped.clients[0].test) == 2
    without = TableCorpus(path=str(write(tmp_path / "s.csv", REVIEWS)), label="stars", drop_leaked="all", clients=2)
    assert prepare(without, Embedding(), 0, None).report[0].leaks.unlabeled is None


def test_without_a_client_the_partition_deals_texts_out(tmp_path: Path) -> None:
    columns = {"text": [f"t{n}" for n in range(80)], "label": [0, 1] * 40}
    path = write(tmp_path / "r.parquet", columns)
    raw = read(path, clients=4, partition={"pathological": {"classes": 1}})
    assert len(raw.clients) == 4
    assert all(nonempty(len(set(client.train.labels.tolist())) == 1 for client in raw.clients))
    assert sorted(texts(raw, "train") + texts(raw, "test")) == sorted(columns["text"])
    assert len(texts(raw, "test")) == 16


def test_clients_of_few_texts_can_be_left_out(tmp_path: Path) -> None:
    columns = {"text": [f"t{n}" for n in range(12)], "label": [0, 1] * 6, "who": ["a"] * 6 + ["b"] * 5 + ["c"]}
    path = write(tmp_path / "r.csv", columns)
    said = complaint(path, client="who", split=0.2)
    assert said.startswith("corpus.client: client 'c' has no train text: add texts, of which two or more must differ, ")
    assert said.endswith("or leave out clients of few texts with corpus.min_texts")
    assert [client.name for client in read(path, client="who", split=0.2, min_texts=2).clients] == ["a", "b"]
    assert "has 7 texts, the largest has 6: lower it" in complaint(path, client="who", min_texts=7)


# What is wrong


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
        ("r.jsonl", b'{"text": "a", "label": 1}\n{"text": "b", "label": "x"}\n', "{path} cannot be read as jsonl ("),
        ("r.jsonl", b'{"text": ["a"], "label": 1}\n', "column 'text' must contain texts, and its type is list<"),
        ("r.jsonl", b'{"text": "a", "label": 1}\n{"text": ["a"], "label": 1}\n', "{path} cannot be read as jsonl ("),
        ("r.parquet", b"PAR1", "{path} cannot be read as parquet ("),
        ("r.xlsx", b"PK", "corpus.path: {path} is none of .csv, .tsv, .jsonl, .ndjson, .json, .parquet, .arrow"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, file: str, written: bytes, said: str) -> None:
    (tmp_path / file).write_bytes(written)
    assert said.format(path=tmp_path / file) in complaint(tmp_path / file)


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
        ({"split": True}, "1 is not a share of test texts"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TableCorpus(path="r.csv", **keys)


# The whole way


def test_a_csv_trains_a_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "reviews.csv", REVIEWS | {"review": REVIEWS["text"]})
    experiment = {
        "name": "own",
        "corpus": {"name": "table", "path": "reviews.csv", "text": "review", **KEYS},
        "model": {"embedding": {"dim": 4}, "hidden": 4, "head": {"hidden": 4}},
        "method": "fedavg",
        "training": {"rounds": 1, "local_epochs": 1},
        "evaluation": {"personalize": None},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(experiment))
    assert main([str(tmp_path / "own.yaml"), "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert "round 1/1" in capsys.readouterr().out
    row = json.loads((tmp_path / "out" / "rows.json").read_text())[-1]
    assert 0 <= row["metrics"]["Ag"] <= 1
    assert "Ag_val" in row["metrics"]
    assert main([str(tmp_path / "own.yaml"), "--data", str(tmp_path), "corpus.label=star"]) == 2
    assert capsys.readouterr().err.startswith("error: corpus.label: ")


def test_a_changed_text_is_another_run(tmp_path: Path) -> None:
    names = []
    for word in ("good", "good", "other"):
        path = write(tmp_path / "r.csv", REVIEWS | {"text": [word, *REVIEWS["text"][1:]]})
        made = tiny.experiment(corpus={"name": "table", "path": str(path), **KEYS})
        assert files.validate(yaml.safe_load(files.resolved(made))) == made
        names.append(fingerprint(made, prepare(made.corpus, made.model.embedding, 0, None).content, 3))
    assert names[0] == names[1] != names[2]
