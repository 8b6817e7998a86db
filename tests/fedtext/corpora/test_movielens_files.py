"""Files of MovieLens that are missing or faulty."""

import re
from pathlib import Path

import pytest

from fedtext.corpora.movielens import MovieLensCorpus
from fedtext.errors import UserError
from tests.fedtext.corpora.test_movielens import write_1m, write_latest


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("ratings", "7::10::4\n", r"ratings\.dat, line 1: 3 columns"),
        ("ratings", "7::10::9::1\n", "9 is not a rating"),
        ("ratings", "7::10::x::1\n", "line 1: 'x' is not a number"),
        ("ratings", "7::99::4::1\n", "user 7 or film 99 is not in users.dat"),
        ("ratings", "\n", r"ratings\.dat holds no lines"),
        ("users", "7::X::18::20::1\n", "gender 'X' or occupation 20 is unknown"),
        (
            "users",
            "7::F::18::20::1\n8::F::18::20::1\n7::M::18::20::1\n",
            r"users\.dat, line 3: user 7 occurs twice",
        ),
        ("movies", "10::A::War\n10::B::War\n", r"movies\.dat, line 2: film 10 occurs twice"),
        ("movies", "10::A (1990)::Comic\n", r"movies\.dat, line 1: 'Comic' is not a genre"),
    ],
)
def test_faulty_lines_of_ml_1m_are_named(tmp_path: Path, name: str, content: str, complaint: str) -> None:
    (write_1m(tmp_path) / f"{name}.dat").write_text(content)
    if name == "movies":
        (tmp_path / "ratings.dat").write_text("7::10::4::1\n8::10::4::1\n")
    with pytest.raises(UserError, match=complaint):
        MovieLensCorpus(release="ml-1m", clients=1).read(tmp_path, 0)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("userId,movieId,rating\n7,10,4\n", "has no column 'timestamp'"),
        ("userId,movieId,rating,timestamp\n7,10,good,1\n", "cannot be read as csv"),
        ("userId,movieId,rating,timestamp\n7,99,4,1\n", r"rates film 99, which is not in movies\.csv"),
        ("userId,movieId,rating,timestamp\n7,10,,1\n", "a missing value in column 'rating'"),
        ("userId,movieId,rating,timestamp\n7,10,6,1\n", "6 is not a rating"),
        ("userId,movieId,rating,timestamp\n", "holds no rows"),
    ],
)
def test_faulty_tables_are_named(tmp_path: Path, content: str, complaint: str) -> None:
    (write_latest(tmp_path, "csv") / "ratings.csv").write_text(content)
    with pytest.raises(UserError, match=complaint):
        MovieLensCorpus(clients=1).read(tmp_path, 0)


@pytest.mark.parametrize("file", ["ratings.dat", "movies.dat", "users.dat", "ratings.csv", "movies.csv", "tags.csv"])
def test_missing_files_are_named(tmp_path: Path, file: str) -> None:
    write_1m(tmp_path)
    write_latest(tmp_path, "csv")
    corpus = MovieLensCorpus(release="ml-1m" if file.endswith(".dat") else "ml-latest-small", clients=1)
    corpus.read(tmp_path, 0)
    (tmp_path / file).unlink()
    with pytest.raises(UserError, match=rf"corpus movielens: no {re.escape(file)}.*, nor {corpus.release}/{file}"):
        corpus.read(tmp_path, 0)
