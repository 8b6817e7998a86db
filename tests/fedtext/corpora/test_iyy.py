"""IYY, on files of the original form made here."""

from pathlib import Path

import numpy as np
import pytest

from fedtext.corpora.iyy import SOURCES, IYYCorpus
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from tests.loops import nonempty


def line(rating: object, text: str) -> str:
    return f"u/1\t\tp 2\t\t{rating}\t\t{text}\n"


def write(folder: Path) -> Path:
    """Every rating once a file, and a text that tells where it stands; the last line without its end."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        for side in ("train", "dev", "test"):
            ratings = range(1, source.ratings + 1)
            lines = [line(rating, f"{source.files} {side} <sssss> r{rating} .") for rating in ratings]
            (folder / f"{source.files}-{side}.txt.ss").write_text("".join(lines).rstrip("\n"))
    return folder


@pytest.mark.parametrize("inner", ["", "iyy"])
def test_three_clients_of_five_classes(tmp_path: Path, inner: str) -> None:
    write(tmp_path / inner)
    raw = IYYCorpus().read(tmp_path, 0)
    assert (raw.classes, [client.name for client in raw.clients]) == (5, ["Imdb", "Yelp13", "Yelp14"])
    imdb, yelp, _ = raw.clients
    assert imdb.train.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert yelp.test.labels.tolist() == [0, 1, 2, 3, 4]
    assert yelp.test.texts[4] == "yelp-2013 test <sssss> r5 ."
    assert not len(imdb.validation)


def test_marks_between_sentences_can_be_dropped(tmp_path: Path) -> None:
    (text, *_) = IYYCorpus(marks=False).read(write(tmp_path), 0).clients[2].train.texts
    assert text.split() == ["yelp-2014", "train", "r1", "."]


def test_the_dev_files_are_the_validation_split_if_there_is_to_be_one(tmp_path: Path) -> None:
    write(tmp_path)
    whole = prepare(IYYCorpus(validation=1.0), Embedding(dim=4), 0, tmp_path)
    assert [len(client.validation) for client in whole.clients] == [10, 5, 5]
    assert [len(client.train) for client in whole.clients] == [10, 5, 5]  # none of it is held out
    part = IYYCorpus(validation=0.4).read(tmp_path, 0).clients
    assert [len(client.validation) for client in part] == [4, 2, 2]
    assert all(nonempty("dev" in text.split() for client in part for text in client.validation.texts))
    assert part[0].validation.texts == IYYCorpus(validation=0.4).read(tmp_path, 0).clients[0].validation.texts
    for source in SOURCES:
        (tmp_path / f"{source.files}-dev.txt.ss").unlink()
    without = prepare(IYYCorpus(), Embedding(dim=4), 0, tmp_path)
    assert [len(client.validation) for client in without.clients] == [0, 0, 0]
    with pytest.raises(UserError, match=r"no imdb-dev\.txt\.ss"):
        IYYCorpus(validation=0.1).read(tmp_path, 0)


def test_texts_are_cut_after_400_words(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "imdb-train.txt.ss").write_text(line(3, "word " * 450))
    client = prepare(IYYCorpus(), Embedding(dim=4), 0, tmp_path).clients[0]
    assert np.diff(client.train.offsets).tolist() == [400]


def test_missing_files_are_looked_for_where_the_message_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=rf"no imdb-train\.txt\.ss, nor iyy/imdb-train.* in {tmp_path}: .*EMNLP 2015"):
        IYYCorpus().read(tmp_path, 0)
    monkeypatch.setenv("FEDTEXT_DATA", str(write(tmp_path / "named")))
    assert len(IYYCorpus().read(None, 0).clients) == 3
    (tmp_path / "named" / "yelp-2014-test.txt.ss").unlink()
    with pytest.raises(UserError, match=r"no yelp-2014-test\.txt\.ss, .* in .*named or .*: give its folder"):
        IYYCorpus().read(None, 0)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (line(1, "a") + "u\t\tp\t\t3\n", r"imdb-test\.txt\.ss, line 2: 3 columns, but a line is user"),
        (line(11, "a"), "line 1: '11' is not a rating from 1 to 10"),
        (line(1, "a") + "\n" + line("x", "b"), "line 3: 'x' is not a rating"),
        (line(0, "a"), "'0' is not a rating"),
        ("\n", "holds no texts"),
    ],
)
def test_faulty_lines_are_named(tmp_path: Path, content: str, complaint: str) -> None:
    (write(tmp_path) / "imdb-test.txt.ss").write_text(content)
    with pytest.raises(UserError, match=complaint):
        IYYCorpus().read(tmp_path, 0)


def test_a_text_may_hold_tabs(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "imdb-train.txt.ss").write_bytes(b"u\t\tp\t\t10\t\t\xc3\xa9t\xc3\xa9\t\tmore\r\n")
    split = IYYCorpus().read(tmp_path, 0).clients[0].train
    assert split.texts == ["été\t\tmore"]
    assert split.labels.tolist() == [4]
