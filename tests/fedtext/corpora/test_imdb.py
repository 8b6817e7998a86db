"""IMDB: on a small file of its form made here, and on the real one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedtext.corpora.imdb import IMDBCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.text.hashing import rolling_hash
from tests.data import real_data
from tests.loops import nonempty


def write(folder: Path, **columns: list) -> Path:
    """So many reviews to train on and to test, each of which names itself; the negative ones first."""
    given = {
        "split": ["test"] * 20 + ["train"] * 30,
        "label": [0] * 10 + [1] * 10 + [0] * 15 + [1] * 15,
        "text": [f"Film<br /><br />{letter * 3} isn't 10/10 {number % 5}" for number, letter in enumerate(names(50))],
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(given | columns), folder / "imdb.parquet")
    return folder


def names(count: int) -> list[str]:
    return [f"{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(count)]


def texts(corpus: IMDBCorpus, data: Path, side: str, seed: int = 0) -> list[list[str]]:
    return [getattr(client, side).texts for client in corpus.read(data, seed).clients]


@pytest.mark.parametrize("inner", ["", "imdb"])
def test_every_review_goes_to_one_client(tmp_path: Path, inner: str) -> None:
    write(tmp_path / inner)
    raw = IMDBCorpus(clients=4).read(tmp_path, 0)
    assert [len(client.train) for client in raw.clients] == [8, 8, 7, 7]
    assert [len(client.test) for client in raw.clients] == [5, 5, 5, 5]
    assert len({text for client in raw.clients for text in client.train.texts}) == 30
    assert len({text for client in raw.clients for text in client.test.texts}) == 20
    assert sum(client.train.labels.sum() for client in raw.clients) == 15
    assert len({client.name for client in raw.clients}) == 4
    assert "Film  aaaaaa isn't 10/10 0" in [text for client in raw.clients for text in client.test.texts]


def test_shares_are_drawn_from_the_seed_alone(tmp_path: Path) -> None:
    write(tmp_path)
    first = texts(IMDBCorpus(clients=3), tmp_path, "train")
    assert first == texts(IMDBCorpus(clients=3, text="hash", max_length=3), tmp_path, "train")
    assert first != texts(IMDBCorpus(clients=3), tmp_path, "train", seed=1)
    assert any(0 < client.train.labels.sum() < 10 for client in IMDBCorpus(clients=3).read(tmp_path, 0).clients)


def test_reviews_are_hashed_over_line_breaks(tmp_path: Path) -> None:
    corpus = prepare(IMDBCorpus(clients=1, text="hash"), Embedding(), 0, write(tmp_path))
    client = corpus.clients[0]
    rows = client.rows_R[client.train.tokens_T[:3]].tolist()
    own = client.rows_R[client.train.tokens_T[1]]
    assert rows == [1 + rolling_hash("film", 5_000), own, 1 + rolling_hash("isnt", 5_000)]
    assert np.diff(client.train.offsets).tolist() == [3] * 30


def test_markup_is_a_blank_or_read_like_all_other_text(tmp_path: Path) -> None:
    data = write(tmp_path)
    corpora = {
        markup: prepare(IMDBCorpus(clients=1, markup=markup), Embedding(), 0, data)  # type: ignore[arg-type]
        for markup in ("drop", "keep")
    }
    assert not {"filmbr", "br"} & set(corpora["drop"].vocabulary)
    assert {"filmbr", "br"} <= set(corpora["keep"].vocabulary)
    assert np.diff(corpora["drop"].clients[0].train.offsets).tolist() == [3] * 30
    assert np.diff(corpora["keep"].clients[0].train.offsets).tolist() == [4] * 30
    assert corpora["drop"].digest != corpora["keep"].digest
    assert corpora["drop"].words == (30 + 2, 50 + 2)
    assert corpora["keep"].words == (30 + 3, 50 + 3)


def test_word_vectors_are_trained_once_for_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("gensim")
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    write(tmp_path)

    def made(clients: int, seed: int, **options: object) -> Corpus:
        init = {"word2vec": {"corpus": "train", "min_count": 1, "epochs": 1} | options}
        config = IMDBCorpus(clients=clients, vocabulary=40)
        return prepare(config, Embedding(dim=4, init=init), seed, tmp_path)

    few, many = made(2, 0), made(5, 1)
    assert few.coverage is not None
    assert (few.coverage.vocabulary, few.coverage.missing) == (1, 0)
    assert len(list((tmp_path / "cache").glob("word2vec-*.npz"))) == 1
    assert few.table_VD is not None
    assert many.table_VD is not None
    both = sorted(set(few.vocabulary[2:]) & set(many.vocabulary[2:]))
    assert all(
        nonempty(
            np.array_equal(few.table_VD[few.vocabulary.index(w)], many.table_VD[many.vocabulary.index(w)]) for w in both
        )
    )
    assert "unlabeled" not in caplog.text
    full = made(2, 0, corpus="full", missing="zero", skip_gram=False)
    assert len(list((tmp_path / "cache").glob("word2vec-*.npz"))) == 2
    assert full.table_VD is not None
    assert not full.table_VD[1].any()  # <unk>
    rare = made(2, 0, min_count=5, missing="zero")
    assert rare.coverage is not None
    assert rare.coverage.missing == len(rare.vocabulary) - len({"<pad>", "<unk>", "film", "isnt"})
    assert rare.table_VD is not None
    assert rare.table_VD.any(1).sum() == 2


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"label": [2] * 50}, "a label that is not 0 or 1"),
        ({"label": [None] + [1] * 49}, "a missing value in column 'label'"),
        ({"split": ["train"] * 50}, "3 clients cannot share 0 test texts"),
    ],
)
def test_faulty_files_are_named(tmp_path: Path, columns: dict, complaint: str) -> None:
    write(tmp_path, **columns)
    with pytest.raises(UserError, match=complaint):
        IMDBCorpus(clients=3).read(tmp_path, 0)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"corpus imdb: no imdb\.parquet, nor imdb/imdb\.parquet, in {tmp_path}"):
        IMDBCorpus().read(tmp_path, 0)
    (tmp_path / "imdb.parquet").write_text("no table")
    with pytest.raises(UserError, match=r"imdb\.parquet cannot be read as parquet"):
        IMDBCorpus().read(tmp_path, 0)
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), tmp_path / "imdb.parquet")
    with pytest.raises(UserError, match=r"imdb\.parquet has no column 'split'"):
        IMDBCorpus().read(tmp_path, 0)
    with pytest.raises(UserError, match="60 clients cannot share 30 train texts"):
        IMDBCorpus(clients=60).read(write(tmp_path), 0)


def test_the_real_reviews() -> None:
    data = real_data("imdb/imdb.parquet")
    corpus = prepare(IMDBCorpus(clients=50, text="hash"), Embedding(), 0, data)
    assert {(len(client.train), len(client.test)) for client in corpus.clients} == {(500, 500)}
    assert sum(client.train.labels_N.sum() for client in corpus.clients) == 12_500
    assert sum(client.test.labels_N.sum() for client in corpus.clients) == 12_500
    assert len(corpus.vocabulary) == 5_001
    assert not any(
        nonempty((split.tokens_T == 0).any() for client in corpus.clients for split in (client.train, client.test))
    )
    assert sum(report.empty for report in corpus.report) == 0
    assert corpus.words == (108_663, 162_308)
    assert (sum(report.leaks.own + report.leaks.others for report in corpus.report)) == 123


def test_the_real_reviews_with_their_markup() -> None:
    data = real_data("imdb/imdb.parquet")
    corpus = prepare(IMDBCorpus(clients=1, markup="keep", text="hash"), Embedding(), 0, data)
    assert corpus.words == (117_853, 175_897)
