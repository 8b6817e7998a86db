"""Readers of the files of MovieLens releases, as GroupLens publishes them.

Legend: N ratings; films and users are numbered in the order of their files.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.base import first
from fedtext.corpora.files import read_table, text_lines
from fedtext.errors import UserError, option
from fedtext.runtime.folders import folders, located

Release = Literal["ml-1m", "ml-latest-small"]
GENDERS = ("F", "M")
OCCUPATIONS = 21  # 0 to 20; ml-1m's README has their names
GENRES = (
    *("Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy"),
    *("Film-Noir", "Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)  # of all releases: a fixed list, so that the rows of features disclose nothing about the data
_NO_GENRE = "(no genres listed)"
_CHILDREN = "Children's"  # the name of this genre in ml-1m
_Number = TypeVar("_Number", int, float)


@dataclass
class Ratings:
    """N ratings of a release, with its films and users.

    Attributes:
        users_N, films_N: Indices of the user and of the film of each rating.
        stars_N: Stars, 0.5 to 5.
        times_N: Time of the rating, in seconds.
        film_ids, titles, genres, tags: Of each film.
        ages, genders, occupations: Of each user; empty if the release does not have them.
    """

    users_N: NDArray[np.int64]
    films_N: NDArray[np.int64]
    stars_N: NDArray[np.float64]
    times_N: NDArray[np.float64]
    film_ids: list[int]
    titles: list[str]
    genres: list[list[str]]
    tags: list[list[str]]
    ages: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    genders: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    occupations: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def read(release: Release, data: Path | None, tags: bool) -> Ratings:
    """Read the ratings of a release.

    Args:
        release: Name of the release.
        data: The folder given with --data, if any.
        tags: Whether to read the tags of films. ml-1m has none.

    Raises:
        UserError: A file is missing, cannot be read, or contradicts another one.
    """
    return _read_1m(data) if release == "ml-1m" else _read_latest(data, tags)


def _read_1m(data: Path | None) -> Ratings:
    paths = [_find("ml-1m", (f"{name}.dat",), data) for name in ("ratings", "movies", "users")]
    films = [(where, _number(int, id_, where), title, genres) for where, (id_, title, genres) in _lines(paths[1], 3)]
    users: dict[int, int] = {}
    people: list[tuple[float, int, int]] = []
    for where, (id_, gender, age, occupation, _) in _lines(paths[2], 5):
        number = _number(int, occupation, where)
        if gender not in GENDERS or not 0 <= number < OCCUPATIONS:
            raise UserError(f"{where}: gender {gender!r} or occupation {number} is unknown in ml-1m: repair it")
        user = _number(int, id_, where)
        if user in users:
            raise UserError(f"{where}: user {user} occurs twice: drop one of the lines")
        users[user] = len(users)
        people.append((_number(float, age, where), GENDERS.index(gender), number))
    places: dict[int, int] = {}
    for where, film, _, _ in films:
        if film in places:
            raise UserError(f"{where}: film {film} occurs twice: drop one of the lines")
        places[film] = len(places)
    rows = []
    for where, (rater, seen, stars, time) in _lines(paths[0], 4):
        user, film = _number(int, rater, where), _number(int, seen, where)
        if user not in users or film not in places:
            raise UserError(f"{where}: user {user} or film {film} is not in users.dat or movies.dat: fetch it again")
        rows.append((users[user], places[film], _stars(float(_number(int, stars, where)), where),
                     _number(int, time, where)))  # fmt: skip
    rated = np.array(rows, np.float64)
    ages, genders, occupations = (np.array(column) for column in zip(*people, strict=True))
    return Ratings(
        rated[:, 0].astype(np.int64), rated[:, 1].astype(np.int64), rated[:, 2], rated[:, 3], list(places),
        [title for *_, title, _ in films], [_genres(genres, where) for where, *_, genres in films],
        [[] for _ in films], ages, genders, occupations,
    )  # fmt: skip


def _read_latest(data: Path | None, tags: bool) -> Ratings:
    paths = {
        name: _find("ml-latest-small", (f"{name}.csv", f"{name}.parquet"), data)
        for name in ("ratings", "movies", *(["tags"] if tags else []))
    }
    films = read_table(paths["movies"], {"movieId": "int64", "title": "string", "genres": "string"})
    rated = read_table(
        paths["ratings"], {"userId": "int64", "movieId": "int64", "rating": "double", "timestamp": "int64"}
    )
    ids = films["movieId"].to_numpy()
    order = np.argsort(ids)
    again = ids[order][1:][np.diff(ids[order]) == 0]
    if len(again):
        raise UserError(f"{paths['movies']}: film {again[0]} occurs twice: drop one of the lines")
    rated_N = rated["movieId"].to_numpy()
    places_N = np.minimum(np.searchsorted(ids[order], rated_N), len(ids) - 1)
    unknown = rated_N[ids[order][places_N] != rated_N]
    if len(unknown):
        raise UserError(
            f"{paths['ratings']} rates film {unknown[0]}, which is not in {paths['movies'].name}: fetch both again"
        )
    stars_N = rated["rating"].to_numpy()
    for stars in (stars_N.min(), stars_N.max()):
        _stars(float(stars), str(paths["ratings"]))
    given: dict[int, list[str]] = defaultdict(list)
    if tags:
        table = read_table(paths["tags"], {"movieId": "int64", "tag": "string"})
        for film, tag in zip(table["movieId"].to_pylist(), table["tag"].to_pylist(), strict=True):
            given[film].append(tag)
    return Ratings(
        np.unique(rated["userId"].to_numpy(), return_inverse=True)[1],
        order[places_N],
        stars_N,
        rated["timestamp"].to_numpy().astype(np.float64),
        ids.tolist(),
        films["title"].to_pylist(),
        [_genres(genres, str(paths["movies"])) for genres in films["genres"].to_pylist()],
        [given.get(film, []) for film in ids.tolist()],
    )


def read_keywords(given: str, data: Path | None) -> dict[int, str]:
    """Read the keywords of films, by the id of the film.

    Args:
        given: Path of the file, absolute or relative to the working or a data folder.
        data: The folder given with --data, if any.

    Raises:
        UserError: There is no such file, or a line has another form.
    """
    path = located(given, folders(data), "corpus.keywords")
    if path is None:
        there = " or ".join(map(str, [Path.cwd(), *folders(data)]))
        raise UserError(f"corpus.keywords: no file {given} in {there}: correct the path")
    found = {}
    for number, line in enumerate(text_lines(path), start=1):
        if line.strip():
            id_, mark, words = line.partition("\t" if "\t" in line else "::")
            if not mark or not id_.strip().isdecimal():
                raise UserError(
                    f"{path}, line {number}: not a film's id, a tab or ::, and its keywords: repair or drop the line"
                )
            found[int(id_)] = words
    return found


def _find(release: Release, names: tuple[str, ...], data: Path | None) -> Path:
    places = (release, release.replace("ml", "movielens").replace("-", "_"), ".")
    path = first([f"{folder}/{name}" for folder in places for name in names], data)
    if path is None:
        raise UserError(
            f"corpus movielens: no {' or '.join(names)}, nor {release}/{names[0]}, in "
            f"{' or '.join(map(str, folders(data)))}: give the folder of the unpacked {release}.zip "
            f"(grouplens.org/datasets/movielens) with {option('data', 'FOLDER')} or $FEDTEXT_DATA"
        )
    return path


def _lines(path: Path, columns: int) -> Iterator[tuple[str, list[str]]]:
    """Return (file and line number, columns) of each line of a .dat file."""
    lines = 0
    for number, line in enumerate(_latin_lines(path), start=1):
        if line.strip():
            lines += 1
            parts = line.rstrip("\r\n").split("::")
            if len(parts) != columns:
                raise UserError(
                    f"{path}, line {number}: {len(parts)} columns separated by ::, not {columns}: repair or drop the "
                    "line"
                )
            yield f"{path}, line {number}", parts
    if not lines:
        raise UserError(f"corpus movielens: {path} holds no lines: fetch it again")


def _latin_lines(path: Path) -> Iterator[str]:
    """Read the lines of a .dat file, whose encoding is Latin-1."""
    try:
        with open(path, encoding="latin-1", newline="\n") as lines:
            yield from lines
    except OSError as error:
        raise UserError(f"corpus movielens: {path} cannot be read ({error.strerror})") from error


def _number(kind: Callable[[str], _Number], text: str, where: str) -> _Number:
    try:
        return kind(text)
    except ValueError:
        raise UserError(f"{where}: {text[:20]!r} is not a number: repair or drop the line") from None


def _stars(stars: float, where: str) -> float:
    if not 0.5 <= stars <= 5:
        raise UserError(f"{where}: {stars:g} is not a rating from 0.5 to 5: repair it")
    return stars


def _genres(genres: str, where: str) -> list[str]:
    named = ["Children" if name == _CHILDREN else name for name in genres.split("|") if name not in (_NO_GENRE, "")]
    for name in named:
        if name not in GENRES:
            raise UserError(f"{where}: {name!r} is not a genre of MovieLens: repair it")
    return named
