"""MovieLens: on files of both releases' forms made here, and on the real small one."""

import csv
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from fedtext.corpora.movielens import MovieLensCorpus
from fedtext.corpora.movielens_files import GENRES
from fedtext.corpora.pool import pool
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import ClientData, Corpus, TokenSet
from fedtext.errors import UserError
from fedtext.ledger.report import reveals
from fedtext.models.base import Embedding
from fedtext.text.hashing import rolling_hash
from tests import tiny
from tests.data import real_data
from tests.loops import nonempty

FILMS = [
    (10, "Café, The (1990)", "Comedy|Children's"),
    (11, "War (Guerre) (2000)", "War|Film-Noir"),
    (14, "Nowhere", "(no genres listed)"),
]
TAGS = [(7, 10, "so funny", 1), (8, 10, "Sci-Fi", 2)]
TABLES = {
    "movies": (("movieId", "title", "genres"), FILMS),
    "tags": (("userId", "movieId", "tag", "timestamp"), TAGS),
}


def rated(half: float = 0) -> list[tuple]:
    """Two users rate all films, twice over; the first only well."""
    return [
        (user, film, stars + half, 100 * number)
        for number, (user, film, stars) in enumerate((u, f, s) for u, s in ((7, 4), (8, 3)) * 2 for f, *_ in FILMS)
    ]


def write_1m(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    users = [(7, "F", 18, 20, "12345"), (8, "M", 56, 0, "98107-2117")]
    for name, rows in (("ratings", rated()), ("movies", FILMS), ("users", users)):
        text = "".join("::".join(map(str, row)) + "\n" for row in rows)
        (folder / f"{name}.dat").write_bytes(text.encode("latin-1"))
    return folder


def write_latest(folder: Path, form: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    header = ("userId", "movieId", "rating", "timestamp")
    for name, (columns, rows) in (TABLES | {"ratings": (header, rated(0.5))}).items():
        if form == "csv":
            with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([columns, *rows])
        else:
            made = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
            pq.write_table(pa.table(made), folder / f"{name}.parquet")
    return folder


def encoded(data: Path, **options: Any) -> Corpus:
    return prepare(MovieLensCorpus(**{"clients": 2, "test": 0.25} | options), Embedding(), 0, data)


def examples(client: ClientData, tokens: TokenSet, corpus: Corpus) -> list[dict[str, float]]:
    assert tokens.values_T is not None
    named = [corpus.vocabulary[row] for row in client.rows_R[tokens.tokens_T]]
    pairs = list(zip(named, tokens.values_T.tolist(), strict=True))
    return [dict(pairs[start:stop]) for start, stop in zip(tokens.offsets, tokens.offsets[1:], strict=False)]


def every(corpus: Corpus, side: str = "train") -> list[tuple[dict[str, float], int]]:
    splits = [(client, getattr(client, side)) for client in corpus.clients]
    return [pair for c, s in splits for pair in zip(examples(c, s, corpus), s.labels_N.tolist(), strict=True)]


def about(corpus: Corpus, word: str) -> list[tuple[dict[str, float], int]]:
    return [pair for side in ("train", "test") for pair in every(corpus, side) if word in pair[0]]


@pytest.mark.parametrize("inner", ["", "ml-1m"])
def test_ml_1m(tmp_path: Path, inner: str) -> None:
    write_1m(tmp_path / inner)
    corpus = encoded(tmp_path, release="ml-1m", test=1 / 3)
    assert corpus.name == "ml-1m"
    assert [(len(client.train), len(client.test)) for client in corpus.clients] == [(4, 2), (4, 2)]
    assert corpus.features == 3 + 2 + 21 + len(GENRES)
    assert [name for name in corpus.vocabulary if name.startswith("feature ")] == corpus.vocabulary[-corpus.features :]
    for example, label in nonempty(about(corpus, "caf")):
        female = "feature gender F" in example
        assert label == int(female)  # four stars, not three
        assert ("feature gender M" in example) != female
        assert ("feature occupation 20" in example) == female
        assert ("feature age" in example) == (not female)  # the least age of train is 0
        assert example.get("feature age", 0) == pytest.approx(0 if female else 1)
        assert {"the", "comedy", "children", "feature genre Comedy", "feature genre Children"} <= set(example)
        assert example["feature genre Comedy"] == example["comedy"] == 1
    assert len(about(corpus, "caf")) == 4


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("inner", ["", "ml-latest-small", "movielens_latest_small"])
def test_ml_latest_small(tmp_path: Path, form: str, inner: str) -> None:
    write_latest(tmp_path / inner, form)
    corpus = encoded(tmp_path)
    assert corpus.name == "ml-latest-small"
    assert corpus.labels == ("below 4 stars", "4 stars or more")
    assert corpus.features == 2 + len(GENRES)
    assert {"so", "funny", "scifi"} <= set(about(corpus, "caf")[0][0])  # its tags
    labels = sorted(label for side in ("train", "test") for _, label in every(corpus, side))
    assert labels == [0] * 6 + [1] * 6  # 3.5 stars are too few
    assert all(nonempty("feature year" not in example for example, _ in about(corpus, "nowhere")))
    assert all(nonempty(example["feature year"] == 1 for example, _ in about(corpus, "guerre")))


def test_numbers_are_scaled_by_train_alone(tmp_path: Path) -> None:
    corpus = encoded(write_latest(tmp_path, "csv"), features=["time"], test=0.5)
    train, test = (
        [example.get("feature time", 0.0) for example, _ in every(corpus, side)] for side in ("train", "test")
    )
    assert (min(train), max(train)) == (0, 1)
    assert len(train) == len(test) == 6
    few = encoded(tmp_path, features=["time"], test=0.8, clients=1)
    values = [example.get("feature time", 0.0) for example, _ in every(few, "test")]
    assert min(values) < 0 or max(values) > 1  # two of twelve moments do not span the others


def test_years_that_nobody_knows_are_zero(tmp_path: Path) -> None:
    path = write_latest(tmp_path, "csv") / "movies.csv"
    path.write_text(re.sub(r" \(\d+\)", "", path.read_text(encoding="utf-8")), encoding="utf-8")
    with warnings.catch_warnings(action="error"):
        corpus = encoded(tmp_path, features=["year"], text="hash")
    assert not any(nonempty(example.get("feature year") for example, _ in every(corpus) + every(corpus, "test")))


def test_a_test_share_of_all_ratings_is_refused(tmp_path: Path) -> None:
    write_latest(tmp_path, "csv")
    for features in (["time"], []):
        with pytest.raises(UserError, match=r"corpus\.test: 0\.99 of 12 ratings leaves none to train on"):
            encoded(tmp_path, test=0.99, features=features)


def test_a_film_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with open(write_latest(tmp_path, "csv") / "movies.csv", "a", encoding="utf-8") as file:
        file.write("11,Peace (2001),War\n")
    with pytest.raises(UserError, match=r"movies\.csv: film 11 occurs twice"):
        encoded(tmp_path)


def test_what_is_scaled_is_said() -> None:
    for features, scaled in ((None, True), (["genres", "time"], True), (["genres"], False), ([], False)):
        experiment = tiny.experiment(model={"name": "bag"}, corpus={"name": "movielens", "features": features})
        assert any("features are scaled by the least" in said for said in reveals(experiment)) == scaled


def test_hashed_words_and_features_are_rows_of_one_table(tmp_path: Path) -> None:
    corpus = encoded(write_latest(tmp_path, "csv"), text={"hash": {"buckets": 100}})
    assert len(corpus.vocabulary) == 1 + 100 + 2 + len(GENRES)
    name = f"#{rolling_hash('guerre', 100)}"
    example, _ = about(corpus, name)[0]
    assert {name, f"#{rolling_hash('war', 100)}", "feature year", "feature genre War"} <= set(example)


def test_features_alone_and_words_alone(tmp_path: Path) -> None:
    write_latest(tmp_path, "csv")
    (tmp_path / "tags.csv").unlink()  # not read
    bare = encoded(tmp_path, side_text=False, text="hash")
    assert all(
        nonempty(
            example == {"<pad>": 1} or all(nonempty(name.startswith("feature ") for name in example))
            for example, _ in every(bare)
        )
    )
    assert sum("feature genre War" in example for example, _ in every(bare) + every(bare, "test")) == 4
    write_latest(tmp_path, "csv")
    words = encoded(tmp_path, features=[])
    assert words.clients[0].train.values_T is None
    assert words.features == 0
    assert not any(nonempty(name.startswith("feature ") for name in words.vocabulary))


def test_keywords_take_the_place_of_titles(tmp_path: Path) -> None:
    write_latest(tmp_path, "csv")
    (tmp_path / "keywords.txt").write_text("10\tbased-on-novel|the end|Don't\n\n11::war|war hero\n")
    corpus = encoded(tmp_path, keywords="keywords.txt", features=["genres"])
    assert {frozenset(n for n in example if "feature" not in n) for example, _ in every(corpus)} == {
        frozenset({"based", "novel", "end"}),  # without stopwords
        frozenset({"war", "hero"}),
        frozenset({"<unk>"}),  # film 14 has neither keywords nor genres
    }
    (tmp_path / "keywords.txt").write_text("10 war\n")
    with pytest.raises(UserError, match=r"keywords\.txt, line 1: not a film's id"):
        encoded(tmp_path, keywords="keywords.txt")
    (tmp_path / "keywords.txt").write_text("12\twar\n")
    with pytest.raises(UserError, match=r"corpus\.keywords: keywords\.txt has no film of ml-latest-small"):
        encoded(tmp_path, keywords="keywords.txt")
    with pytest.raises(UserError, match=r"corpus\.keywords: no file nowhere\.txt"):
        encoded(tmp_path, keywords="nowhere.txt")


def test_keywords_are_found_where_the_corpus_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_latest(tmp_path, "csv")
    (tmp_path / "keywords.txt").write_text("11\thero\n")
    monkeypatch.setenv("FEDTEXT_DATA", str(tmp_path))
    raw = MovieLensCorpus(clients=1, keywords="keywords.txt").read(None, 0)
    assert {text for client in raw.clients for text in client.train.texts} == {"hero", ""}


def test_values_are_part_of_what_identifies_a_corpus_and_are_pooled(tmp_path: Path) -> None:
    write_latest(tmp_path, "csv")
    corpus = encoded(tmp_path)
    pooled = pool(corpus.clients)
    assert pooled.train.values_T is not None
    joined = [client.train.values_T for client in corpus.clients]
    assert pooled.train.values_T.tolist() == np.concatenate([v for v in joined if v is not None]).tolist()
    assert len(pooled.train.values_T) == len(pooled.train.tokens_T)
    text = (tmp_path / "ratings.csv").read_text().splitlines()
    text[2] = text[2].replace(",100", ",150")
    (tmp_path / "ratings.csv").write_text("\n".join(text))
    assert encoded(tmp_path).digest != corpus.digest


def test_what_cannot_be_is_refused() -> None:
    for options, complaint in (
        ({"features": ["age"]}, "ml-latest-small has no age"),
        ({"side_text": False, "features": []}, "nothing to learn from"),
        ({"side_text": False, "keywords": "k"}, "does not use the keywords file"),
    ):
        with pytest.raises(ValidationError, match=complaint):
            MovieLensCorpus(**options)


def test_the_real_small_release() -> None:
    data = real_data("movielens_latest_small/ratings.parquet")
    corpus = prepare(MovieLensCorpus(clients=100, text="hash"), Embedding(), 0, data)
    assert sum(len(client.train) + len(client.test) for client in corpus.clients) == 100_836
    sizes = {len(client.train) for client in corpus.clients}
    assert max(sizes) - min(sizes) <= 1
    positive = sum(int(s.labels_N.sum()) for client in corpus.clients for s in (client.train, client.test))
    assert positive == 48_580  # 4, 4.5 and 5 stars
    assert len(corpus.vocabulary) == 5_001 + 2 + len(GENRES)
