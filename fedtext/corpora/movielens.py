"""MovieLens: does a user give a film four stars or more? (Harper and Konstan, TiiS 2015; RR-LDP paper, section 4.)

An example is a rating: the words of the film, and features of the film, the user and the time. GroupLens permits use of
the data for research; see the terms in the README that comes with the files.
Legend: N ratings, K features of one.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.movielens_files import GENDERS, GENRES, OCCUPATIONS, Ratings, Release, read, read_keywords
from fedtext.corpora.shares import deal
from fedtext.corpora.types import Features, RawCorpus, Split
from fedtext.errors import UserError
from fedtext.seeding import generator
from fedtext.text.hashing import letters
from fedtext.text.representation import TextField, Words
from fedtext.text.stopwords import STOPWORDS

CLASSES = 2  # 0: fewer than 4 stars of 5; 1: 4 or more. The paper says 3, but its class counts are those of 4.
_POSITIVE = 4.0
_YEAR = re.compile(r"\((\d{4})[^()]*\)\s*$")
_BETWEEN = str.maketrans("|,-_", "    ")  # separators of keywords, and of the words of a keyword

Feature = Literal["age", "year", "time", "gender", "occupation", "genres"]
_SCALED: tuple[Feature, ...] = ("age", "year", "time")
KNOWN: dict[Release, tuple[Feature, ...]] = {
    "ml-1m": ("age", "year", "time", "gender", "occupation", "genres"),
    "ml-latest-small": ("year", "time", "genres"),
}


class MovieLensCorpus(CorpusConfig):
    """MovieLens: ratings of films as two classes, with words and features of films and users (RR-LDP paper).

    Read from the files of GroupLens, in a folder with the release's name (ml-1m/ratings.dat, ...) or directly in the
    data folder; ml-latest-small also as Parquet.

    The words of a film come from the keywords file if there is one, otherwise from its title, genres and tags. Features
    are further rows after the vocabulary: age, year and time of rating have one row each, with a value from 0 to 1
    (scaled by minimum and maximum of train); each gender, occupation and genre has a row of its own, with the value 1.
    The paper does not say how ratings were split; here the share ``test`` of them is drawn. They are split
    over the clients in equal shares, as in the paper: a client is not a user, whose ratings lie with many clients.
    """

    name: Literal["movielens"] = "movielens"
    files = ("ratings.*", "movies.*", "tags.*", "users.dat")
    label_names = ("below 4 stars", "4 stars or more")
    release: Release = Field("ml-latest-small", description="release of MovieLens (RR-LDP paper: ml-1m)")
    clients: int = Field(
        100,
        ge=1,
        description="number of clients that the ratings of all users are split over (RR-LDP paper: 10, 50, 100, 250)",
    )
    test: float = Field(0.2, gt=0, lt=1, description="share of the ratings that is held out for the test")
    keywords: str | None = Field(
        None, description="file of keywords; each line is the id of a film, a tab or ::, and its keywords"
    )
    side_text: bool = Field(True, description="whether to use the words of films; false: features alone")
    features: tuple[Feature, ...] | None = Field(
        None, description="features to use; null: all that the release has; []: words alone"
    )
    text: TextField = Field(
        Words(letters=True), description="tokens of a text: its words, or buckets they are hashed to"
    )
    max_length: int | None = Field(
        None, ge=1, description="words kept of each text, from its beginning; null: all of them"
    )

    @model_validator(mode="after")
    def _something_to_read(self) -> "MovieLensCorpus":
        if not self.side_text and self.keywords:
            raise ValueError("side_text: false does not use the keywords file: leave one of them out")
        if not self.side_text and not self.has_features:
            raise ValueError("side_text: false and features: [] leave nothing to learn from: set one of them")
        for feature in self.features or ():
            if feature not in KNOWN[self.release]:
                raise ValueError(f"features: {self.release} has no {feature}, only {', '.join(KNOWN[self.release])}")
        return self

    @property
    def has_features(self) -> bool:
        return self.features != ()

    @property
    def scales_features(self) -> bool:
        return bool(set(_SCALED) & set(self._used))

    @property
    def _used(self) -> tuple[Feature, ...]:
        return KNOWN[self.release] if self.features is None else tuple(dict.fromkeys(self.features))

    @property
    def draws_clients(self) -> bool:
        return True

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        ratings = read(self.release, data, tags=self.side_text and not self.keywords)
        order_N = generator(seed, "test ratings").permutation(len(ratings.stars_N))
        held = max(1, round(self.test * len(order_N)))
        if held == len(order_N):
            raise UserError(f"corpus.test: {self.test:g} of {held} ratings leaves none to train on: lower it")
        names, features = self._features(ratings, order_N[held:])
        texts = self._texts(ratings, data)
        whole = Split(
            [texts[film] for film in ratings.films_N.tolist()],
            (ratings.stars_N >= _POSITIVE).astype(np.int64),
            features,
        )
        clients = deal(whole.take(order_N[held:]), whole.take(order_N[:held]), self.clients, seed)
        return RawCorpus(self.release, CLASSES, clients, names)

    def _texts(self, ratings: Ratings, data: Path | None) -> list[str]:
        """Return the text of each film. Stopwords are removed from keywords, as in the paper; a text may be empty."""
        if not self.side_text:
            return [""] * len(ratings.titles)
        if self.keywords is None:
            parts = zip(ratings.titles, ratings.genres, ratings.tags, strict=True)
            return [" ".join([_YEAR.sub("", title), *genres, *tags]) for title, genres, tags in parts]
        given = read_keywords(self.keywords, data)
        if given.keys().isdisjoint(ratings.film_ids):
            raise UserError(
                f"corpus.keywords: {self.keywords} has no film of {self.release}: give the file of its films"
            )
        words = (letters(given.get(film, "").translate(_BETWEEN)).split() for film in ratings.film_ids)
        return [" ".join(word for word in text if word not in STOPWORDS) for text in words]

    def _features(self, ratings: Ratings, train_N: NDArray[np.int64]) -> tuple[tuple[str, ...], Features | None]:
        """Return the names of all features, and the features of each rating."""
        names: list[str] = []
        blocks: list[tuple[NDArray, NDArray]] = []
        films_N, users_N = ratings.films_N, ratings.users_N
        for feature in self._used:
            start = len(names)
            if feature == "gender":
                names += [f"gender {gender}" for gender in GENDERS]
                blocks.append(_one(start + ratings.genders[users_N]))
            elif feature == "occupation":
                names += [f"occupation {number}" for number in range(OCCUPATIONS)]
                blocks.append(_one(start + ratings.occupations[users_N]))
            elif feature == "genres":
                names += [f"genre {genre}" for genre in GENRES]
                columns, values = _several([[start + GENRES.index(g) for g in genres] for genres in ratings.genres])
                blocks.append((columns[films_N], values[films_N]))
            else:
                names.append(feature)
                values_N = {
                    "age": lambda: ratings.ages[users_N],
                    "year": lambda: np.array([_year(title) for title in ratings.titles])[films_N],
                    "time": lambda: ratings.times_N,
                }[feature]()
                blocks.append((np.full((len(films_N), 1), start), _scaled(values_N, train_N)[:, None]))
        if not blocks:
            return (), None
        columns_NK, values_NK = (np.concatenate(side, axis=1) for side in zip(*blocks, strict=True))
        return tuple(names), Features(columns_NK.astype(np.int32), values_NK.astype(np.float32))


def _year(title: str) -> float:
    found = _YEAR.search(title)
    return float(found[1]) if found else np.nan


def _scaled(values_N: NDArray, train_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scale to 0..1 by minimum and maximum of train; 0 for unknown values, and if train has only one value or none."""
    known = values_N[train_N][~np.isnan(values_N[train_N])]
    if not len(known):
        return np.zeros(len(values_N))
    least, greatest = known.min(), known.max()
    scaled_N = (values_N - least) / (greatest - least if greatest > least else np.inf)
    return np.nan_to_num(scaled_N, nan=0.0)


def _one(columns_N: NDArray) -> tuple[NDArray, NDArray]:
    return columns_N[:, None], np.ones((len(columns_N), 1))


def _several(columns: Sequence[Sequence[int]]) -> tuple[NDArray, NDArray]:
    """Turn ragged lists into matrices of columns and values, padded with column 0 of value 0."""
    lengths = np.array([len(some) for some in columns])
    there = np.arange(lengths.max(initial=1)) < lengths[:, None]
    filled = np.zeros(there.shape, np.int64)
    filled[there] = [column for some in columns for column in some]
    return filled, there.astype(np.float64)
