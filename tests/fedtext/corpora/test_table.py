"""The corpus ``table``: columns, splits and clients of a user's own labelled texts."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from fedtext.__main__ import main
from fedtext.config import files
from fedtext.corpora.prepare import prepare
from fedtext.corpora.statistics import render
from fedtext.corpora.table import TableCorpus
from fedtext.corpora.table_values import ordered
from fedtext.corpora.totals import unused
from fedtext.models.base import Embedding
from fedtext.state.fingerprint import fingerprint
from tests import tiny
from tests.fedtext.corpora.tables import KEYS, REVIEWS, SIDES, complaint, content, read, texts, write
from tests.loops import nonempty


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


def test_classes_and_clients_have_an_order() -> None:
    assert ordered({"10", "9", "-1", "2.5"}) == ["-1", "2.5", "9", "10"]
    assert ordered({"b", "10", "9", "B"}) == ["10", "9", "B", "b"]
    large = ["99999999999999999998", "100000000000000000001"]  # the same as floats
    assert ordered(large) == large


def test_classes_can_be_listed_so_that_no_label_of_a_client_becomes_one(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", REVIEWS)
    raw = read(path, **KEYS, classes=[10, 5, 2, 1])
    assert (raw.labels, raw.classes) == (("10", "5", "2", "1"), 4), "a class may be without texts"
    same = read(path, **KEYS)
    for listed, found in nonempty(zip(raw.clients, same.clients, strict=True)):
        assert [raw.labels[n] for n in listed.train.labels] == [same.labels[n] for n in found.train.labels]
    dealt = read(path, label="stars", clients=3, classes=["10", "5", "2", "1"], partition={"dirichlet": {"alpha": 1.0}})
    assert (dealt.classes, sum(len(client.train) for client in dealt.clients)) == (4, 38)
    refused = complaint(path, **KEYS, classes=["10", "2"])
    assert "corpus.classes: " in refused
    assert "12 rows have other labels (the first '1') than '10', '2': add what is missing, or leave such" in refused
    kept = read(path, **KEYS, classes=["10", "2"], missing="drop")
    assert sum(len(getattr(client, side)) for client in kept.clients for side in SIDES) == 36
    assert "no row with 'a', 'b': correct them" in complaint(path, **KEYS, classes=["a", "b"], missing="drop")
    truths = write(tmp_path / "b.csv", {"text": REVIEWS["text"], "label": ["True", "false", "TRUE", "False"] * 12})
    assert read(truths, clients=2, classes=[True, False]).labels == ("true", "false")
    with pytest.raises(ValidationError, match="true is there twice: list each label once"):
        TableCorpus(path="r.csv", classes=["true", True])  # type: ignore[arg-type]


def test_a_label_that_yaml_reads_as_another_value_is_said_with_what_is_listed(tmp_path: Path) -> None:
    answers = write(tmp_path / "a.csv", {"text": REVIEWS["text"], "label": ["yes", "no"] * 24})
    assert (
        "48 rows have other labels (the first 'yes') than 'true', 'false' (put yes, no, on and off in quotation "
        in (complaint(answers, clients=2, classes=[True, False]))
    )
    once = write(tmp_path / "o.csv", {"text": REVIEWS["text"], "label": [*["a", "b"] * 23, "a", "c"]})
    assert "1 row has 'c', which is none of 'a', 'b': add" in complaint(once, clients=2, classes=["a", "b"])
    many = complaint(answers, clients=2, classes=list(range(12)))
    assert "than '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ...: add" in many
    with pytest.raises(ValidationError, match="a label that is empty is of no row: leave it out"):
        TableCorpus(path="r.csv", classes=["a", " "])


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
    assert [len(c.validation) for c in prepare(first, Embedding(), 0, None).clients] == [3, 3, 3], (
        "a quarter of 12, of classes of 3, 3 and 6"
    )


def test_clients_of_few_texts_have_test_texts_too(tmp_path: Path) -> None:
    """One in five of each of two classes of two texts would be none."""
    columns = {"text": [f"t{n}" for n in range(40)], "label": [0, 1] * 20, "client": [n // 4 for n in range(40)]}
    raw = read(write(tmp_path / "r.csv", columns), client="client", split=0.2)
    assert [client.name for client in raw.clients] == [str(n) for n in range(10)]
    assert {(len(client.train), len(client.test)) for client in raw.clients} == {(3, 1)}


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
    assert [len(c.validation) for c in prepare(held, Embedding(), 0, None).clients] == [6, 6, 6], (
        "half of 12, out of train"
    )
    dealt = read(path, label="stars", split="fold", validation=0.5, clients=3)
    assert [len(client.validation) for client in dealt.clients] == [2, 2, 2]


def test_validation_rows_that_are_not_used_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", REVIEWS)
    sentence = "12 validation rows are not used, since corpus.validation is 0: corpus.validation=1.0 uses all"
    by_client, dealt = {"label": "stars", "client": "shop", "split": "fold"}, {"label": "stars", "split": "fold"}
    for keys, validation in nonempty(product((by_client, dealt | {"clients": 3}), (0.0, 0.5))):
        corpus = prepare(TableCorpus(path=str(path), validation=validation, **keys), Embedding(), 0, None)
        assert (f"\n{sentence}.\n" in f"{render(corpus)}\n") == (not validation)
        assert unused(corpus) == ([] if validation else [sentence])
    assert unused(replace(corpus, unused=1))[0].startswith("1 validation row is not used")
    drawn = prepare(TableCorpus(path=str(path), **by_client | {"split": 0.25}), Embedding(), 0, None)
    assert not unused(drawn), "the column is not read"


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
