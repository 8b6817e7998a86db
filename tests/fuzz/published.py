"""The files of published corpora, small ones in each form that is read, mutated."""

import io
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedtext.corpora.fdu import DOMAINS
from fedtext.corpora.iyy import SOURCES
from tests.fuzz import raw
from tests.fuzz.values import VALUES
from tests.stackoverflow import Row, sqlite_file

Files = dict[str, bytes]
SIDES = ("train", "test")
LONG = b"x" * 3_000_000
WORDS = ("good", "bad", "kettle", "lamp", "river", "seven", "4711")


def _sentence(number: int) -> str:
    return " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 2, 3, 5))


def _rows(labels: int, sides: Sequence[str] = SIDES, of_each: int = 6) -> list[dict[str, Any]]:
    """Rows of a corpus of labelled texts."""
    return [
        {"split": side, "label": number % labels, "text": f"{side} {_sentence(number)} {number}"}
        for side in sides
        for number in range(labels * of_each)
    ]


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    made = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), made)
    return made.getvalue()


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _language(table: str, file: str) -> Callable[[random.Random], Files]:
    """The files of a corpus for language models: a table, or a file of lines for each split."""

    def made(draw: random.Random) -> Files:
        sides = {side: [_sentence(number + at) for number in range(20)] for at, side in enumerate(LANGUAGE)}
        if draw.random() < 0.5:
            rows = [{"split": side, "text": line} for side, lines in sides.items() for line in lines]
            return {table: _parquet(rows)}
        return {file.format(side): _text(lines) for side, lines in sides.items()}

    return made


LANGUAGE = ("train", "valid", "test")


def _fdu(draw: random.Random) -> Files:
    if draw.random() < 0.5:
        rows = [row | {"domain": domain} for domain in DOMAINS for row in _rows(2, of_each=2)]
        return {"fdu_mtl.parquet": _parquet(rows)}
    lines = [f"{number % 2}\t{_sentence(number)}" for number in range(6)]
    return {f"{domain}.task.{side}": _text(lines) for domain in DOMAINS[:3] for side in (*SIDES, "unlabel")}


def _agnews(draw: random.Random) -> Files:
    extra = {"has_title": True, "description": "a description of it"} if draw.random() < 0.5 else {}
    return {draw.choice(("ag_news.parquet", "ag_news_subset.parquet")): _parquet([r | extra for r in _rows(4)])}


def _iyy(draw: random.Random) -> Files:
    return {
        f"{source.files}-{side}.txt.ss": _text(
            [f"u\t\tp\t\t{number % source.ratings + 1}\t\t{_sentence(number)}" for number in range(12)]
        )
        for source in SOURCES
        for side in (*SIDES, "dev")
    }


def _movielens(draw: random.Random) -> Files:
    films = range(1, 9)
    if draw.random() < 0.5:
        return {
            "users.dat": _text([f"{user}::{'FM'[user % 2]}::25::{user % 21}::12345" for user in range(1, 7)]),
            "movies.dat": _text([f"{film}::A film {film} (1990)::Comedy|Drama" for film in films]),
            "ratings.dat": _text([f"{u}::{film}::{film % 5 + 1}::{90 + film}" for u in range(1, 7) for film in films]),
        }
    return {
        "movies.csv": _text(["movieId,title,genres", *(f"{film},A film {film} (1990),Comedy|Drama" for film in films)]),
        "ratings.csv": _text(
            [
                "userId,movieId,rating,timestamp",
                *(f"{user},{film},{film % 5 + 0.5},{90 + film}" for user in range(1, 7) for film in films),
            ]
        ),
        "tags.csv": _text(["userId,movieId,tag,timestamp", *(f"1,{film},funny,{film}" for film in films)]),
    }


def _reddit(draw: random.Random) -> Files:
    import json

    comments = [{"author": f"user{number % 3}", "body": f"{_sentence(number)}."} for number in range(60)]
    form = draw.choice(("jsonl", "json", "csv", "parquet"))
    if form == "parquet":
        return {"reddit.parquet": _parquet(comments)}
    if form == "csv":
        return {"reddit.csv": _text(["author,body", *(f"{one['author']},{one['body']}" for one in comments)])}
    lines = [json.dumps(one) for one in comments]
    return {f"reddit.{form}": _text(lines)}


def _stackoverflow(draw: random.Random) -> Files:
    rows = [
        Row(f"user{user}", split, f"2017-0{1 + number % 9}-01", _sentence(user + number))
        for user in range(3)
        for split in SIDES
        for number in range(6)
    ]
    if draw.random() < 0.5:
        return {"stackoverflow.sqlite": sqlite_file(rows)}
    return {"stackoverflow.parquet": _parquet([row._asdict() for row in rows])}


MADE: dict[str, Callable[[random.Random], Files]] = {
    "fdu": _fdu,
    "imdb": lambda draw: {"imdb.parquet": _parquet(_rows(2, of_each=20))},
    "agnews": _agnews,
    "sst2": lambda draw: {"sst2.parquet": _parquet(_rows(2, ("train", "validation", "test")))},
    "newsgroups20": lambda draw: {"newsgroups20.parquet": _parquet(_rows(20, of_each=3))},
    "iyy": _iyy,
    "movielens": _movielens,
    "ptb": _language("ptb.parquet", "ptb.{}.txt"),
    "wikitext2": _language("wikitext2.parquet", "wiki.{}.tokens"),
    "reddit": _reddit,
    "stackoverflow": _stackoverflow,
}
LANGUAGE_MODELS = ("ptb", "wikitext2", "reddit", "stackoverflow")


def write(path: Path, draw: random.Random) -> dict[str, Any]:
    """Write a mutated corpus into the folder ``path``, and return its section of an experiment."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    name = draw.choice(list(MADE))
    files = MADE[name](draw)
    section = {"name": name} | options(name, files, path)
    for place in draw.sample(list(files), k=min(len(files), draw.choice((0, 1, 1, 1, 2)))):
        files[place] = _mutated(files[place], draw)
    folder = path / {"agnews": "ag_news", "fdu": "fdu_mtl"}.get(name, name) if draw.random() < 0.3 else path
    folder = path if "source" in section or name == "movielens" else folder
    folder.mkdir(exist_ok=True)
    for place, content in files.items():
        (folder / place).write_bytes(content)
    if draw.random() < 0.1:
        lost = folder / draw.choice(list(files))
        lost.unlink()
        if draw.random() < 0.6:
            lost.mkdir()
    if draw.random() < 0.1:
        key = draw.choice(("clients", "file", "source", "titles", "release", "sentences", "validation", "max_length"))
        section[key] = draw.choice(VALUES)
    return section


def options(name: str, files: Files, path: Path) -> dict[str, Any]:
    """The keys without which a small corpus would be refused."""
    if name == "fdu":
        return {} if "fdu_mtl.parquet" in files else {"source": str(path), "clients": list(DOMAINS[:3])}
    if name == "reddit":
        return {"file": next(iter(files)), "clients": 2}
    if name == "stackoverflow":
        return {"path": next(iter(files)), "clients": 2, "storage": "memory"}
    if name == "movielens":
        return {"release": "ml-1m" if "users.dat" in files else "ml-latest-small", "clients": 2}
    return {} if name == "iyy" else {"clients": 2}


def _mutated(content: bytes, draw: random.Random) -> bytes:
    """The content of a file after one or two mutations: bytes, encoding, columns or lines."""
    lines = content.split(b"\n")
    kind = draw.randrange(8)
    if kind == 0:
        return content.decode("utf-8", "replace").encode(draw.choice(("latin-1", "cp1252", "utf-16")), "replace")
    if kind == 1:
        return content.replace(b"good", draw.choice(("café".encode("latin-1"), b"\0", b"\xff\xfe", LONG, b"")))
    if kind == 2:
        lines[draw.randrange(len(lines))] = draw.choice((LONG, b"", b"\t\t\t\t", b"::::", b",,,,", b"\0", b"0" * 5000))
        return b"\n".join(lines)
    if kind == 3 and content[:4] == b"PAR1":
        return _columns(content, draw)
    if kind == 4:
        return b"\n".join(lines[: draw.randrange(len(lines))])
    return raw.mutated(content, draw)


def _columns(content: bytes, draw: random.Random) -> bytes:
    """A Parquet file with a column that is missing, renamed, or of another type."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
    column = draw.choice(list(rows[0]))
    value = draw.choice((None, "x", -1, 2**40, 1.5, [1], {"a": 1}, b"\xff", "x" * 1_000_000, "", "\0", True))
    kind = draw.randrange(4)
    for row in rows:
        if kind == 0:
            row.pop(column)
        elif kind == 1:
            row[f"{column}s"] = row.pop(column)
        elif kind == 2:
            row[column] = value
    if kind == 3:
        return _parquet(rows[: draw.choice((1, 2, 5))])
    return _parquet(rows)


def use(section: dict[str, Any], data: Path) -> None:
    """What the commands do with a corpus before anything trains, with a model of its kind."""
    from fedtext.api.run import load
    from fedtext.corpora.prepare import prepare
    from fedtext.server.start import participant_count

    language = section["name"] in LANGUAGE_MODELS
    model = {"name": "gru_lm", "hidden": 4} if language else {"name": "bag", "hidden": [4]}
    made = {"name": "fuzzed", "corpus": section, "method": "fedatt" if language else "fedavg"}
    experiment = load(made | {"model": model | {"embedding": {"dim": 4}}, "evaluation": {"personalize": None}})
    corpus = prepare(experiment.corpus, experiment.model.embedding, 0, data, experiment.own_vocabularies)
    participant_count(experiment, corpus)
