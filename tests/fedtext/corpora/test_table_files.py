"""The corpus ``table`` reads files of several formats, folders, lists of files, and data sets of the hub."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fedtext.corpora import hub, table_files
from fedtext.corpora.prepare import prepare
from fedtext.corpora.statistics import render
from fedtext.corpora.table import TableCorpus
from fedtext.models.base import Embedding
from tests.fedtext.corpora.tables import KEYS, REVIEWS, complaint, content, read, texts, write
from tests.loops import nonempty


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


def test_json_lines_need_not_agree_in_what_is_not_read(tmp_path: Path) -> None:
    rows = [{"text": "2020-01-01", "label": n % 2, "votes": n if n % 3 else "many"} for n in range(12)]
    rows[0]["text"], rows[1]["label"] = "a day", None
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8-sig")
    raw = read(tmp_path / "r.jsonl", missing="drop", clients=1)
    assert sorted(texts(raw, "train") + texts(raw, "test")) == ["2020-01-01"] * 10 + ["a day"]


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


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars"), ("/", "")])
def test_columns_with_another_separator_are_said_to_have_it(mark: str, word: str, tmp_path: Path) -> None:
    lines = [mark.join(("text", "label")), *[mark.join((f"text {n}", str(n % 2))) for n in range(8)]]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    said, end = complaint(tmp_path / "t.csv", clients=2), ": its columns seem to be separated by "
    assert "t.csv has no column 'text', only text" in said
    more = ", or name the file .tsv" * (word == "tabs")
    assert said.partition(end)[2] == (f"{word}; write commas between them{more}" if word else "")
    (tmp_path / "t.csv").rename(tmp_path / "t.tsv")
    if word == "tabs":
        assert read(tmp_path / "t.tsv", clients=2).labels == ("0", "1")


def test_the_order_of_a_folder_is_that_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "a", "c"):
        write(tmp_path / f"{name}.csv", {"text": [f"{name}{n}" for n in range(8)], "label": [0, 1] * 4})
    first = read(tmp_path, clients=2)
    scanned = os.scandir

    class Reversed:
        def __init__(self, *path: Any) -> None:
            with scanned(*path) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __iter__(self) -> Any:
            return iter(self.entries)

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
    assert complaint(f"file://{data}/s.csv") == f"corpus.path: there is nothing at file://{data}/s.csv: correct it"
    assert complaint("https://host/s.csv").startswith("corpus.path: https:// is none of s3, gs, ")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_table_in_utf_16_is_told_how_it_is_converted(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "r.csv").write_bytes("\ufefftext,stars\nfine,10\n".encode(encoding))
    assert "r.csv, line 1: it is UTF-16: convert the file (iconv -f UTF-16 -t UTF-8)" in complaint(tmp_path / "r.csv")
