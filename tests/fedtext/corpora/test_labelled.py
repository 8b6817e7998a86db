"""20 Newsgroups, AG News and SST-2: on small files of their form made here, and on the real ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedtext.corpora import CORPORA, hub
from fedtext.corpora.agnews import AGNewsCorpus, Auxiliary, repaired
from fedtext.corpora.newsgroups20 import Newsgroups20Corpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.sst2 import SST2Corpus
from fedtext.corpora.types import RawCorpus
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.text.representation import Words
from tests.data import real_data
from tests.loops import nonempty

FILES = {
    "newsgroups20": "newsgroups20/newsgroups20.parquet",
    "agnews": "ag_news/ag_news_subset.parquet",
    "sst2": "sst2/sst2.parquet",
}
MESSAGE = """From: a@b.c (A B)
Subject: a question

In article <1@d>, E wrote:
> is it so?
It is so.

--
A B, Nowhere
"""


def write(data: Path, file: str, **columns: list[Any]) -> Path:
    (data / file).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), data / file)
    return data


def rows(classes: int, sides: dict[str, int]) -> dict[str, list[Any]]:
    """So many texts of each class on each side, each of which names itself."""
    named = [(side, label, number) for side, n in sides.items() for label in range(classes) for number in range(n)]
    return {
        "split": [side for side, _, _ in named],
        "label": [label for _, label, _ in named],
        "text": [f"{side} {label} {number}" for side, label, number in named],
    }


def texts(raw: RawCorpus, side: str) -> list[str]:
    return [text for client in raw.clients for text in getattr(client, side).texts]


@pytest.mark.parametrize(("name", "classes"), [("newsgroups20", 20), ("agnews", 4), ("sst2", 2)])
@pytest.mark.parametrize("inner", [True, False])
def test_texts_are_read_with_their_labels_and_dealt_out(tmp_path: Path, name: str, classes: int, inner: bool) -> None:
    file, columns = FILES[name], rows(classes, {"test": 3, "train": 6, "dev": 2})
    write(tmp_path, file if inner else file.partition("/")[2], **columns)
    raw = CORPORA[name](clients=4, partition={"pathological": {"classes": classes // 2}}).read(tmp_path, 0)
    assert raw.classes == classes
    for side in ("train", "test"):
        assert sorted(texts(raw, side)) == sorted(text for text in columns["text"] if text.startswith(side))
        for client in nonempty(raw.clients):
            split = getattr(client, side)
            assert [int(text.split()[1]) for text in split.texts] == split.labels.tolist()
    assert not texts(raw, "validation")


def test_dev_is_what_sst2_holds_out(tmp_path: Path) -> None:
    write(tmp_path, FILES["sst2"], **rows(2, {"train": 10, "dev": 6, "test": 4}))
    whole = SST2Corpus(clients=2, validation=1.0)
    corpus = prepare(whole, Embedding(), 0, tmp_path)
    assert [len(client.train) for client in corpus.clients] == [10, 10]
    assert [len(client.validation) for client in corpus.clients] == [6, 6]
    assert all(nonempty(text.startswith("dev") for text in texts(whole.read(tmp_path, 0), "validation")))
    assert len(texts(SST2Corpus(clients=2, validation=0.5).read(tmp_path, 0), "validation")) == 6
    with pytest.raises(UserError, match=r"2 clients cannot share 1 validation texts: .* raise corpus\.validation"):
        SST2Corpus(clients=2, validation=0.1).read(tmp_path, 0)


# 20 Newsgroups


@pytest.mark.parametrize(
    ("strip", "left"),
    [
        ([], MESSAGE),
        (["headers"], MESSAGE.partition("\n\n")[2]),
        (["footers"], MESSAGE.partition("\n--")[0]),
        (["headers", "quotes", "footers"], "It is so.\n"),
    ],
)
def test_messages_are_stripped_of_what_is_asked_for(tmp_path: Path, strip: list[Any], left: str) -> None:
    columns = rows(20, {"train": 1, "test": 1}) | {"text": [MESSAGE] * 40}
    raw = Newsgroups20Corpus(clients=1, strip=strip).read(write(tmp_path, FILES["newsgroups20"], **columns), 0)
    assert {*texts(raw, "train"), *texts(raw, "test")} == {left}


@pytest.mark.parametrize("strip", [["headers"], ["footers"], ["headers", "quotes", "footers"], []])
def test_messages_are_stripped_in_predictions_too(tmp_path: Path, strip: list[Any]) -> None:
    columns = rows(20, {"train": 1, "test": 1}) | {"text": [MESSAGE] * 40}
    config = Newsgroups20Corpus(clients=1, strip=strip)
    raw = config.read(write(tmp_path, FILES["newsgroups20"], **columns), 0)
    assert {config.tokens_of(MESSAGE, ())} == set(texts(raw, "test"))
    for other in nonempty(("He wrote: it is so.", "Subject: a\n\nbody\n--\nend", MESSAGE.partition("\n\n")[2])):
        assert config.tokens_of(other, ()) == other, "no message with headers"


def test_a_message_of_one_paragraph_has_no_footer(tmp_path: Path) -> None:
    columns = rows(20, {"train": 1, "test": 1}) | {"text": ["one\ntwo"] * 40}
    raw = Newsgroups20Corpus(clients=1, strip=["footers"]).read(write(tmp_path, FILES["newsgroups20"], **columns), 0)
    assert set(texts(raw, "train")) == {"one\ntwo"}


def test_stopwords_can_be_dropped_and_raw_words_parted() -> None:
    text = "The cats aren't (all) mine: it's 1,000 of THEM, isn't it?"
    assert Words(stopwords="drop").clean(text) == "cats mine: 1,000"
    assert Words(treebank=True).clean(text) == "the cats are n't ( all ) mine : it 's 1,000 of them , is n't it ?"
    assert Words(letters=True, stopwords="drop").clean(text) == "cats mine"
    assert Words(treebank=True, stopwords="drop").clean(text) == "cats n't ( ) mine : 1,000 , n't ?"
    with pytest.raises(ValueError, match="letters leaves no punctuation for treebank"):
        Words(letters=True, treebank=True)


# AG News


def news(data: Path) -> Path:
    """Of train one text with its title, one without, per class; of test one with its description beside it."""
    columns = rows(4, {"train": 2, "test": 1})
    titled = [not text.endswith("1") for text in columns["text"]]
    alone = [f"alone {text}" if text.startswith("test") else None for text in columns["text"]]
    return write(data, FILES["agnews"], **columns, has_title=titled, description=alone)


def test_titles_are_kept_or_left_out(tmp_path: Path) -> None:
    data = news(tmp_path)

    def read(titles: Any) -> tuple[list[str], list[str]]:
        raw = AGNewsCorpus(clients=2, titles=titles).read(data, 0)
        return tuple(sorted(texts(raw, side)) for side in ("train", "test"))  # type: ignore[return-value]

    test = [f"test {label} 0" for label in range(4)]
    assert read("any") == (sorted(f"train {label} {n}" for label in range(4) for n in (0, 1)), test)
    assert read("always") == ([f"train {label} 0" for label in range(4)], test)
    assert read("never") == ([f"train {label} 1" for label in range(4)], [f"alone {text}" for text in test])


def test_escapes_are_the_signs_they_stand_for() -> None:
    assert repaired(r"Haiti #39;s isle\of  #36;10") == "Haiti's isle of  $10"
    assert repaired("it didn #39;t, the Cubs #39; &lt;b&gt;win&lt;/b&gt;") == "it didn't, the Cubs' <b>win</b>"
    assert repaired("a  quot;fan quot; for \\$5 amp; 7 #151;up") == 'a  "fan " for $5 & 7 —up'
    assert repaired("they say they are #39;happy #39; now") == "they say they are 'happy' now"
    assert repaired("number #1; a plot;") == "number #1; a plot;"


def test_the_shortest_texts_with_numbers_are_what_attacks_are_tried_on(tmp_path: Path) -> None:
    made = ["1 2 c", "10 20 30 four", "1 2 3", "4 5 6", "a 1 2 3 4", "1 2 3 7-6 v8", "1, 2, 3,"]
    made += ["7 " * 30 + "!", ("7 " * 29) + "!"]  # 31 words, 30 words
    columns = {"split": ["train"] * 9 + ["test"] * 4, "label": [0, 1, 2, 3] * 3 + [0], "text": made + ["no number"] * 4}
    write(tmp_path, FILES["agnews"], **columns)

    def read(auxiliary: Any) -> list[str]:
        raw = AGNewsCorpus(clients=1, auxiliary=auxiliary).read(tmp_path, 0)
        assert len(texts(raw, "test")) == 4
        return texts(raw, "train")

    assert read(None) == made
    assert read(1) == ["1 2 3"], "the earlier of two that are equally short"
    assert read(4) == read({"texts": 4}) == ["1 2 3", "4 5 6", "a 1 2 3 4", "1 2 3 7-6 v8"]
    assert read(6)[-1] == made[8]
    few = AGNewsCorpus(clients=1, auxiliary=Auxiliary(texts=4, test=3)).read(tmp_path, 0)
    assert (len(texts(few, "train")), len(texts(few, "test"))) == (4, 3)
    assert read({"texts": 2, "words": 3, "numbers": 2}) == ["1 2 c", "1 2 3"]
    with pytest.raises(UserError, match=r"corpus\.auxiliary: 6 train texts have at least 3 numbers .* asks for 7"):
        read(7)


# The hub


def test_where_there_are_no_files_the_hub_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[str] = []

    def load(name: str, **options: Any) -> dict[str, Any]:
        asked.append(name)
        classes, text = (4, "text") if "ag_news" in name else (20, "text") if "20" in name else (2, "sentence")
        text = "text" if name == "SetFit/sst2" else text
        sides = {}
        for side in ("train", "validation", "test"):
            made = rows(classes, {side: 3})
            hidden = name == "stanfordnlp/sst2" and side == "test"
            sides[side] = {text: made["text"], "label": [-1] * len(made["label"]) if hidden else made["label"]}
        return sides

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(hub, "_unreached", lambda: None)
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDTEXT_DATA", raising=False)
    news = AGNewsCorpus(clients=2).read(None, 0)
    reviews = SST2Corpus(clients=2, validation=1.0).read(None, 0)
    groups = Newsgroups20Corpus(clients=2, strip=["quotes", "headers", "footers"]).read(None, 0)
    assert asked == ["fancyzhx/ag_news", "stanfordnlp/sst2", "SetFit/sst2", "SetFit/20_newsgroups"]
    assert [len(texts(raw, "test")) for raw in (news, reviews, groups)] == [12, 6, 60]
    assert len(texts(reviews, "validation")) == 6
    with pytest.raises(UserError, match="does not separate titles from descriptions"):
        AGNewsCorpus(titles="never").read(None, 0)
    with pytest.raises(UserError, match=r"set corpus\.strip to \[headers, footers, quotes\]"):
        Newsgroups20Corpus().read(None, 0)
    assert len(asked) == 4


# What is wrong with files


def test_faulty_files_are_named(tmp_path: Path) -> None:
    columns = rows(4, {"train": 2, "test": 2})
    write(tmp_path, FILES["agnews"], **(columns | {"label": [4, *columns["label"][1:]]}))
    with pytest.raises(UserError, match=r"ag_news_subset\.parquet has a label that is not 0 to 3"):
        AGNewsCorpus(clients=2).read(tmp_path, 0)
    write(tmp_path, FILES["agnews"], **columns)
    with pytest.raises(UserError, match=r"ag_news_subset\.parquet has no column 'has_title'"):
        AGNewsCorpus(clients=2, titles="always").read(tmp_path, 0)
    with pytest.raises(UserError, match="9 clients cannot share 8 train texts"):
        AGNewsCorpus(clients=9).read(tmp_path, 0)


# The real ones


@pytest.mark.parametrize(
    ("name", "train", "test", "classes"), [("newsgroups20", 11_314, 7_532, 20), ("agnews", 18_905, 7_600, 4),
                                            ("sst2", 67_349, 1_821, 2)]
)  # fmt: skip
def test_the_real_ones(name: str, train: int, test: int, classes: int) -> None:
    data = real_data(FILES[name])
    raw = CORPORA[name](partition="dirichlet").read(data, 0)
    assert len(raw.clients) == 100
    for side, size in (("train", train), ("test", test)):
        found = [len(getattr(client, side)) for client in raw.clients]
        assert sum(found) == size
        assert max(found) - min(found) <= 1
        labels = np.concatenate([getattr(client, side).labels for client in raw.clients])
        assert set(labels.tolist()) == set(range(classes))


def test_of_the_real_news_so_many_have_numbers() -> None:
    data = real_data(FILES["agnews"])
    for numbers, there in ((3, 25), (2, 145), (1, 964)):
        asked = AGNewsCorpus(clients=1, auxiliary={"texts": there, "numbers": numbers})  # type: ignore[arg-type]
        assert len(texts(asked.read(data, 0), "train")) == there
        with pytest.raises(UserError, match=f"{there} train texts have at least {numbers}"):
            AGNewsCorpus(auxiliary={"texts": there + 1, "numbers": numbers}).read(data, 0)  # type: ignore[arg-type]


def test_the_real_news_without_titles() -> None:
    data = real_data(FILES["agnews"])
    sizes = {}
    for titles in ("always", "never"):
        raw = AGNewsCorpus(titles=titles).read(data, 0)  # type: ignore[arg-type]
        sizes[titles] = len(texts(raw, "train")), len(texts(raw, "test"))
        words = [len(text.split()) for text in texts(raw, "test")]
        assert not any(nonempty("#39;" in text or "\\" in text for text in texts(raw, "train")))
    assert sizes == {"always": (9_772, 7_600), "never": (9_133, 7_600)}
    assert 25 < np.mean(words) < 35
