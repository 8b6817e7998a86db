"""What a corpus of a plug-in may be wrong in: one sentence before anything is encoded."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import Field

from fedtext.corpora.checked import check_read
from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.table import TableCorpus
from fedtext.corpora.types import RawClient, RawCorpus, Split
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.testing import check_corpus


def split(*labels: int) -> Split:
    return Split([f"text {n}" for n in range(len(labels))], np.array(labels, np.int64))


GOOD = RawCorpus("own", 2, [RawClient("a", split(0, 1), split(1)), RawClient("b", split(1), split())])


def with_client(client: RawClient) -> RawCorpus:
    return replace(GOOD, clients=[*GOOD.clients, client])


class Own(DemoCorpus):
    """The corpus above, and a client that has labels in a list, or half of a character."""

    name: Literal["own"] = "own"  # type: ignore[assignment]
    kind: Literal["list", "half"] = Field("list", description="what is wrong")

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        labels: Any = [0] if self.kind == "list" else np.array([0])
        return with_client(RawClient("c", Split(["a" if self.kind == "list" else "\ud83d"], labels), split(1)))


@pytest.mark.parametrize(
    ("corpus", "sentence"),
    [
        (replace(GOOD, clients=[]), "corpus demo has no clients: see whether its files are those that it reads"),
        (with_client(GOOD.clients[0]), "corpus demo has 2 clients named 'a': give each a name of its own"),
        (with_client(RawClient("c", split(), split(1))), "client 'c' has no train text: leave the client out"),
        (replace(GOOD, labels=("x", "y", "z")), "corpus demo has 2 classes, and names of 3"),
        (
            with_client(RawClient("c", split(0, 2), split())),
            "'c' has a text of class 2, and the number of classes is 2",
        ),
        (
            with_client(RawClient("c", split(0), split(-1))),
            "'c' has a text of class -1, and the number of",
        ),
        (with_client(RawClient("c", split(0), split(), split(5))), "'c' has a text of class 5"),
        (with_client(RawClient("c", Split(["a"], np.array([0.5])), split())), "'c' has labels that are not one whole"),  # type: ignore[arg-type]
        (with_client(RawClient("c", Split(["a"], np.array(["x"])), split())), "'c' has labels that are not one whole"),  # type: ignore[arg-type]
        (with_client(RawClient("c", Split(["a"], np.array([0, 1])), split())), "'c' has labels that are not one whole"),
        (with_client(RawClient("c", Split(["a"], [0]), split())), "'c' has labels as list, and not as an array"),  # type: ignore[arg-type]
        (
            with_client(RawClient("c", Split(["\ud83d"], np.array([0])), split())),
            "'c' has '\\ud83d', half of a character",
        ),
        (with_client(RawClient(7, split(0), split())), "a client is called 7, and names are texts: use str()"),  # type: ignore[arg-type]
        (with_client(RawClient("", split(0), split())), "a client is called '', and names are texts"),
        (replace(GOOD, labels=(0, 1)), "a class is called 0, and names are texts: use str()"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_one_sentence(corpus: RawCorpus, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        check_read(corpus, DemoCorpus())
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "sentence"), [("list", "are list, and must be int64"), ("half", "half of a character")]
)
def test_a_check_of_it_is_one_sentence_too(kind: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_corpus(Own.model_validate({"kind": kind}))


def test_a_corpus_of_clients_with_and_without_test_texts_is_fine() -> None:
    check_read(replace(GOOD, labels=("x", "y")), DemoCorpus())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"hash": {"buckets": 9}}, "corpus.text: hash leaves no word of any train text, since it keeps the letters a"),
        ({"words": {"letters": True}}, "corpus.text: words leaves no word of any train text, since it keeps the"),
        ({"words": {"treebank": True}}, ""),
        ({"bpe": {"size": 300}}, ""),
    ],
)
def test_texts_of_another_script_need_words_that_keep_it(tmp_path: Path, text: dict[str, Any], said: str) -> None:
    rows = "".join(f"رائع {n},{n % 2}\n" for n in range(20))
    (tmp_path / "r.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    corpus = TableCorpus(path=str(tmp_path / "r.csv"), clients=2, text=text)  # type: ignore[arg-type]
    if said:
        with pytest.raises(UserError) as raised:
            prepare(corpus, Embedding(dim=2), 0, None)
        assert str(raised.value).startswith(said)
    else:
        assert len(prepare(corpus, Embedding(dim=2), 0, None).clients) == 2
