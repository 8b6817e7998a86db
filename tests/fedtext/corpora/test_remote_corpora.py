"""Corpora on an object store: the same texts, digests and messages as from a local folder."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fedtext
from fedtext.corpora.fdu import FDUCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.table import TableCorpus
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.runtime.folders import folder_of
from fedtext.text.embeddings import find_file, read_vectors
from tests.fedtext.corpora.tables import REVIEWS, write
from tests.stores import SECRET, Store, object_store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    with object_store(monkeypatch, tmp_path / "cache") as store:
        yield store


def prepared(keys: dict, data: Path | None = None) -> Corpus:
    """A corpus by its keys."""
    config = {"table": TableCorpus, "fdu": FDUCorpus}[keys["name"]]
    return prepare(config.model_validate(keys), Embedding(), 0, data)


OWN = {"name": "table", "text": "text", "label": "stars", "client": "shop", "split": "fold"}


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table_on_a_store_is_the_corpus_of_the_local_file(store: Store, tmp_path: Path, ending: str) -> None:
    local = write(tmp_path / f"reviews.{ending}", REVIEWS)
    store.put(f"own/reviews.{ending}", local.read_bytes())
    here = prepared({**OWN, "path": str(local)})
    assert prepared({**OWN, "path": store.uri(f"own/reviews.{ending}")}).content == here.content
    by_folder = prepared({**OWN, "path": f"reviews.{ending}"}, folder_of(store.uri("own"), "--data"))
    assert by_folder.content == here.content


def test_a_folder_of_texts_on_a_store(store: Store, tmp_path: Path) -> None:
    for n in range(24):
        file = tmp_path / "texts" / f"shop{n % 2}" / ("good" if n % 4 < 2 else "bad") / f"{n}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"text number {n}")
    store.copy(tmp_path / "texts", "texts")
    keys = {"name": "table", "folders": ["client", "label"], "client": "client", "split": 0.25}
    here = prepared({**keys, "path": str(tmp_path / "texts")})
    assert prepared({**keys, "path": store.uri("texts")}).content == here.content


def test_a_message_names_the_uri_and_no_path_of_the_cache(store: Store, tmp_path: Path) -> None:
    store.put("own/reviews.csv", b"text,stars\nfine,1\n\xff,2\n")
    keys = {"name": "table", "label": "stars", "clients": 1}
    with pytest.raises(UserError, match=r"s3://fedtext-tests/own/reviews\.csv, line 3, byte 1: 0xff is not") as error:
        prepared({**keys, "path": store.uri("own/reviews.csv")})
    assert str(tmp_path) not in str(error.value)
    with pytest.raises(UserError, match=r"corpus\.path: there is nothing at s3://fedtext-tests/own/none\.csv"):
        prepared({**keys, "path": store.uri("own/none.csv")})
    with pytest.raises(UserError, match=r"corpus fdu: no fdu_mtl\.parquet.* in s3://fedtext-tests/own: give"):
        prepared({"name": "fdu"}, folder_of(store.uri("own"), "--data"))


def test_a_run_on_a_store_prints_no_secret(store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store.put("own/reviews.csv", write(tmp_path / "r.csv", REVIEWS).read_bytes())
    own = "{name: table, path: reviews.csv, label: stars, client: shop, split: fold}"
    out = tmp_path / "out"
    result = fedtext.run("own_texts.yaml", f"corpus={own}", "training.rounds=1", data=store.uri("own"), out=out)
    assert np.isfinite(result.metrics["Ag"])
    printed = capfd.readouterr()
    assert SECRET not in printed.out + printed.err
    written = [file for file in out.rglob("*") if file.is_file()]
    assert len(written) > 5
    assert not [file for file in written if SECRET.encode() in file.read_bytes()]


def test_word_vectors_on_a_store(store: Store) -> None:
    store.put("vectors/v.txt", b"good 1 2\nbad 3 4\n")
    file = find_file(store.uri("vectors/v.txt"), [])
    assert read_vectors(file, 2, {"bad"}).vectors_WD.tolist() == [[3.0, 4.0]]
    assert find_file("v.txt", [folder_of(store.uri("vectors"), "--data")]).read_bytes() == file.read_bytes()
    with pytest.raises(UserError, match=r"no word vectors at s3://fedtext-tests/vectors/none\.txt"):
        find_file(store.uri("vectors/none.txt").partition("?")[0] + "?" + store.uri("x").partition("?")[2], [])


def test_the_original_reviews_on_a_store(store: Store, tmp_path: Path) -> None:
    for side in ("train", "test"):
        for name in ("books", "dvd"):
            lines = "".join(f"{n % 2}\t{name} {side} text {n}\n" for n in range(8))
            store.put(f"fdu/{name}.task.{side}", lines.encode())
            (tmp_path / f"{name}.task.{side}").write_text(lines)
    here = prepared({"name": "fdu", "source": str(tmp_path)})
    assert prepared({"name": "fdu", "source": store.uri("fdu")}).content == here.content
    with pytest.raises(UserError, match=re.escape("corpus.source: no folder s3://fedtext-tests/none")):
        prepared({"name": "fdu", "source": store.uri("none")})
