"""Corpora are encoded and counted: rows, vocabularies, digests, and the table of statistics."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtext.corpora.prepare import prepare
from fedtext.corpora.statistics import render
from fedtext.corpora.totals import unsuited
from fedtext.corpora.types import Leaks, RawClient
from fedtext.errors import UserError, command_line
from fedtext.models.base import Embedding
from tests.fedtext.corpora.given import corpus_of, encoded, faulty, split, words
from tests.loops import nonempty


def test_encoding_by_hand() -> None:
    corpus = encoded(corpus_of(RawClient("a", split("b a b", "", "c a", labels=[1, 0, 1]), split("z b d", labels=[1])),
                               RawClient("b", split("d d d", labels=[0]), split("a d", labels=[0]))))  # fmt: skip
    assert corpus.vocabulary == ["<pad>", "<unk>", "d", "a", "b", "c"]  # 3 d; 2 a, 2 b; 1 c; z is only in test
    first, second = corpus.clients
    assert first.rows_R.tolist() == [0, 1, 3, 4, 5, 2]  # <pad>; train: <unk> (the empty text), a, b, c; test only: d
    assert first.train_rows == 5
    assert first.train.tokens_T.tolist() == [3, 2, 3, 1, 4, 2]
    assert first.train.offsets.tolist() == [0, 3, 4, 6]
    assert first.test.tokens_T.tolist() == [1, 3, 5]  # z is <unk>
    assert first.train.labels_N.tolist() == [1, 0, 1]
    assert second.rows_R.tolist() == [0, 2, 3]
    assert second.train_rows == 2
    assert (first.id, second.id) == (0, 1)
    assert len(first.validation) == 0
    assert first.validation.offsets.tolist() == [0]
    types = {tokens.tokens_T.dtype.name for tokens in (first.train, first.validation, first.test)}
    assert types == {"int32"}
    assert (first.rows_R.dtype, first.train.offsets.dtype, first.train.labels_N.dtype) == (np.int32, np.int64, np.int64)
    assert corpus.table_VD is None


WORD = st.sampled_from(["a", "b", "c", "d", "é", "日本", "'s", "<unk>", "<pad>"])
TEXT = st.lists(WORD, max_size=8).flatmap(
    lambda parts: st.sampled_from([" ", "  ", "\t", " \n"]).map(lambda blank: blank.join(parts))
)


def test_a_client_without_train_texts_is_refused_by_its_name() -> None:
    with pytest.raises(UserError, match=r"^corpus given: client 'b' has no train text: leave the client out$"):
        encoded(corpus_of(RawClient("a", split("x"), split("t")), RawClient("b", split(), split("t"))))


@settings(max_examples=60, deadline=None)
@given(
    clients=st.lists(
        st.tuples(st.lists(TEXT, min_size=1, max_size=5), st.lists(TEXT, min_size=1, max_size=4)),
        min_size=1,
        max_size=3,
    ),
    max_length=st.integers(1, 6),
    vocabulary=st.integers(1, 6),
)
def test_decoding_gives_the_clipped_words_back(
    clients: list[tuple[list[str], list[str]]], max_length: int, vocabulary: int
) -> None:
    raw = [RawClient(f"c{i}", split(*train), split(*test)) for i, (train, test) in enumerate(clients)]
    corpus = encoded(corpus_of(*raw, max_length=max_length, vocabulary=vocabulary))
    known = set(corpus.vocabulary) - {"<pad>"}
    assert len(corpus.vocabulary) <= vocabulary + 2
    for client, texts in nonempty(zip(corpus.clients, raw, strict=True)):
        for tokens, side in ((client.train, texts.train), (client.test, texts.test)):
            expected = [
                [word if word in known else "<unk>" for word in text.split()[:max_length]] or ["<unk>"]
                for text in side.texts
            ]
            assert words(client, tokens, corpus) == expected
        train, rest = client.rows_R[: client.train_rows], client.rows_R[client.train_rows :]
        assert train[0] == 0
        assert set(train[1:]) == set(client.rows_R[client.train.tokens_T])
        assert np.all(np.diff(train) > 0)
        assert np.all(np.diff(rest) > 0)
        assert not set(train) & set(rest)


def test_digest_changes_with_anything_and_with_nothing_else() -> None:
    def digest(text: str = "a b", label: int = 1, test: str = "a", name: str = "n", **options: Any) -> str:
        return encoded(corpus_of(RawClient(name, split(text, labels=[label]), split(test)), **options)).digest

    changed = [
        digest(), digest(text="a c"), digest(text="b a"), digest(label=0), digest(test="b"), digest(name="m"),
        digest(max_length=1), digest(vocabulary=1),
    ]  # fmt: skip
    assert len(set(changed)) == len(changed)
    assert digest() == digest()
    assert len(digest()) >= 16
    assert set(digest()) <= set("0123456789abcdef")


def test_report_counts_empty_duplicated_and_leaked_texts() -> None:
    (report,) = encoded(corpus_of(faulty())).report
    assert (report.train, report.validation, report.test) == (5, 0, 5)
    assert (report.empty, report.duplicates, report.leaks) == (2, 2, Leaks(3, 0))  # "c" twice, and "a  b"
    assert report.mean_length == 7 / 5
    assert report.vocabulary == 3


def test_distinct_words_are_counted_before_any_are_left_out() -> None:
    client = RawClient("a", split("A b", "b c's 10", "d"), split("e B"))
    for options, counts in (
        ({"vocabulary": 1, "validation": 0.4}, (5, 7)),
        ({"text": {"words": {"letters": True}}}, (4, 5)),
        ({"text": {"hash": {"buckets": 2}}}, (4, 5)),
    ):
        corpus = encoded(corpus_of(client, **options))
        assert corpus.words == counts
        assert f"distinct words: {counts[0]} in train" in render(corpus)


@pytest.mark.parametrize(
    ("train", "test", "words", "said"),
    [
        (["我们 好", "很好", "不好"], ["很坏"], {}, ["train texts have 1.3 words between blanks on average: if their"]),
        (["a b", "c d"], ["x y", "a z"], {}, ["75% of the test tokens are <unk>: use byte pairs (corpus.text={bpe:"]),
        (["a b", "c d"], ["a x"], {}, []),
        (["a b", "рад c d"], ["рад", "a b"], {"letters": True}, ["1 text has no word after cleaning by corpus.text: "]),
        (["a b", "", "c d e"], ["a b"], {"letters": True}, []),
    ],
)
def test_other_tokens_are_named_where_words_do_not_suit(
    train: list[str], test: list[str], words: dict[str, Any], said: list[str]
) -> None:
    corpus = encoded(corpus_of(RawClient("a", split(*train), split(*test)), text={"words": words}))
    found = unsuited(corpus)
    assert [sentence[: len(begin)] for sentence, begin in zip(found, said, strict=True)] == said
    assert [line for line in render(corpus).splitlines() if "byte pairs" in line] == [f"{each}." for each in found]


def test_table_of_statistics_is_aligned_and_adds_up() -> None:
    other = RawClient("other", split(*["a b c"] * 1200), split("e"))
    lines = render(encoded(corpus_of(faulty(), other))).splitlines()
    table = [line for line in lines[: lines.index("")] if not line.startswith("-")]
    assert {len(line) for line in table} == {len(table[0])}
    assert [line.split() for line in table[1:]] == [
        ["f", "5", "0", "5", "1", "3", "2", "2", "3", "0", "1.0", "█·"],
        ["other", "1,200", "0", "1", "3", "3", "0", "1,199", "0", "0", "1.0", "█·"],
        ["total", "1,205", "0", "6", "3", "5", "2", "1,201", "3", "0", "1.0", "█·"],
    ]


def test_of_more_than_fifty_clients_there_are_quantiles() -> None:
    """Clients with 1, 2, ... train texts, of which that of 60 is the last."""
    clients = [RawClient(f"c{i}", split(*["a b c"] * i), split("e")) for i in range(1, 61)]
    corpus = encoded(corpus_of(*clients))
    lines = render(corpus).splitlines()
    heads, *rows = (re.split(r"  +", line.strip()) for line in lines[: lines.index("")])
    assert heads == ["0 %", "10 %", "50 %", "90 %", "99 %", "100 %", "mean", "all"]
    assert rows[0] == ["train", "1", "7", "31", "54", "59", "60", "30.5", "1,830"]
    assert rows[2:5] == [["test", *["1"] * 6, "1.0", "60"], ["avg len", *["3"] * 6, "3.0", "3"], rows[4]]
    names = ["train", "val", "test", "avg len", "vocab", "empty", "dup train", "leaked: own", "leaked: others"]
    assert [row[0] for row in rows] == [*names, "classes"]
    assert lines[len(rows) + 2].startswith("Percentiles are over 60 clients; ")
    with command_line():
        assert "60 clients; --each prints a line for each of them." in render(corpus)
    assert "; all: kept in the vocabulary" in render(corpus)
    assert "a bar for each class" not in render(corpus), "there are none"
    each = render(corpus, each=True).splitlines()
    assert "; total: kept in the vocabulary" in "".join(each)
    assert "a bar for each class" in "".join(each)
    assert [line.split()[0] for line in each[2:62]] == [client.name for client in clients]
    assert render(encoded(corpus_of(*clients[:50]))).splitlines()[2].startswith("c1 "), "fifty are listed"


def test_a_corpus_without_unlabeled_texts_says_so() -> None:
    with pytest.raises(UserError, match=r"corpus 'given' has no unlabeled texts"):
        prepare(corpus_of(faulty()), Embedding(init="word2vec"), 0, None)
