"""The rolling hash, and corpora whose words are hashed."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtext.config import files
from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.text.hashing import buckets, hash_texts, letters, rolling_hash
from fedtext.text.representation import Hash, Words
from tests.loops import nonempty

M = 5_000


def by_hand(word: str, count: int) -> int:
    return sum((ord(letter) - ord("a") + 1) * 31**place for place, letter in enumerate(word)) % count


def words_of(text: str) -> list[str]:
    return [word for raw in text.lower().split() if (word := re.sub("[^a-z]", "", raw))]


@pytest.mark.parametrize(
    ("word", "bucket"),
    [("dog", 2196), ("cats", 283), ("and", 4279), ("dogs", 3225), ("a", 1), ("zz", 832)],
)
def test_words_fall_into_the_paper_s_buckets(word: str, bucket: int) -> None:
    """RR-LDP paper, section 3.2; no word of two letters is above 832."""
    assert rolling_hash(word, M) == bucket


def test_the_paper_s_sentence_as_a_set_and_as_a_sequence() -> None:
    assert buckets("cats and dogs", M) == sorted([283, 4279, 3225])
    assert hash_texts([letters("Cats and DOGS and")], M)[0].tolist() == [283, 4279, 3225, 4279]


def test_a_text_is_the_set_of_its_words_of_letters() -> None:
    assert letters('  "Don\'t"  10/10 -- stop\u00a0caf\u00e9\x1fna\u00efve ') == "dont stop caf nave"
    assert buckets("Dogs, AND dogs 10/10 -- c4ts", M) == buckets("and cts dogs", M)
    assert buckets("Don't", M) == [rolling_hash("dont", M)]
    assert buckets("10/10 !", M) == []


@given(st.text("azAZ \n\x1f'7\u00e9\u00a0\u2003\u0130\u212a\u017f\ud83d"))
def test_letters_are_those_of_each_word_by_itself(text: str) -> None:
    assert letters(text) == " ".join(words_of(text))
    assert letters(letters(text)) == letters(text)


@given(st.lists(st.text("abcxyz \n'7\u00e9"), max_size=8), st.integers(1, 2**30))
def test_texts_are_hashed_like_their_words_one_by_one(texts: list[str], count: int) -> None:
    ids_T, offsets = hash_texts(map(letters, texts), count)
    parts = np.split(ids_T, offsets[1:-1]) if texts else []
    assert [part.tolist() for part in parts] == [[by_hand(word, count) for word in words_of(t)] for t in texts]


@pytest.mark.parametrize("count", [1, 31, 2**30])
def test_long_words_and_long_texts_are_exact(count: int) -> None:
    texts = ["z" * 3_000, "", " ".join(["zyxwv"] * 40_000), "", "b"]
    ids_T, offsets = hash_texts(texts, count)
    assert np.diff(offsets).tolist() == [1, 0, 40_000, 0, 1]
    assert ids_T[0] == by_hand(texts[0], count)
    assert set(ids_T[1:-1].tolist()) == {by_hand("zyxwv", count)}
    assert ids_T[-1] == by_hand("b", count)


# Corpora


def test_every_bucket_has_a_row_behind_the_padding_and_there_is_no_unk() -> None:
    corpus = prepare(DemoCorpus(clients=2, train=20, test=10, text={"hash": {"buckets": 50}}), Embedding(), 0, None)
    assert len(corpus.vocabulary) == 51  # whatever occurs
    assert corpus.vocabulary[0] == "<pad>"
    assert "<unk>" not in corpus.vocabulary
    raw = DemoCorpus(clients=2, train=20, test=10).read(None, 0).clients[1]
    client = corpus.clients[1]
    for texts, tokens in ((raw.train.texts, client.train), (raw.test.texts, client.test)):
        parts = np.split(client.rows_R[tokens.tokens_T], tokens.offsets[1:-1])
        for text, rows in nonempty(zip(texts, parts, strict=True)):
            assert rows.tolist() == [by_hand(word, 50) + 1 for word in words_of(text)]
    assert corpus.report[1].mean_length == np.diff(client.train.offsets).mean()
    assert corpus.report[1].vocabulary == client.train_rows - 1


def test_hashed_sequences_are_cut_like_those_of_words() -> None:
    whole, cut = (
        prepare(DemoCorpus(clients=1, train=20, test=10, text="hash", max_length=length), Embedding(), 0, None)
        for length in (None, 5)
    )
    full, short = (corpus.clients[0].rows_R[corpus.clients[0].train.tokens_T] for corpus in (whole, cut))
    parts = np.split(full, whole.clients[0].train.offsets[1:-1])
    assert short.tolist() == np.concatenate([part[:5] for part in parts]).tolist()
    assert whole.report[0].mean_length == cut.report[0].mean_length


def test_a_text_without_letters_is_one_place_of_padding() -> None:
    rows_T, offsets = Hash(buckets=10).encode(["", "a b", "", ""], 1)
    assert rows_T.tolist() == [0, 2, 0, 0]
    assert offsets.tolist() == [0, 1, 2, 3, 4]
    rows_T, offsets = Hash(buckets=10).encode([], None)
    assert (rows_T.tolist(), offsets.tolist()) == ([], [0])


def test_buckets_do_not_depend_on_what_clients_have() -> None:
    few, many = (
        prepare(DemoCorpus(clients=2, train=size, test=5, text="hash"), Embedding(), 0, None) for size in (10, 50)
    )
    assert few.vocabulary == many.vocabulary
    assert not DemoCorpus(text="hash").counts_words
    assert DemoCorpus().counts_words


def test_words_of_letters_are_the_words_that_are_hashed() -> None:
    corpus = prepare(DemoCorpus(clients=1, train=30, test=5, text={"words": {"letters": True}}), Embedding(), 0, None)
    assert all(nonempty(re.fullmatch("[a-z]+", word) for word in corpus.vocabulary[2:]))
    plain = prepare(DemoCorpus(clients=1, train=30, test=5), Embedding(), 0, None)
    assert "." in plain.vocabulary


def test_it_is_written_as_a_name_or_with_options() -> None:
    assert DemoCorpus(text="hash").text == Hash()
    assert DemoCorpus(text={"hash": {"buckets": 7}}).text == Hash(buckets=7)
    assert DemoCorpus().text == Words()
    for text in (Hash(buckets=7), Words(letters=True)):
        assert DemoCorpus(**DemoCorpus(text=text).model_dump()).text == text


@pytest.mark.parametrize(
    ("corpus", "model", "complaint"),
    [
        (
            {"text": "hash", "vocabulary": 7},
            {"name": "bag"},
            r"corpus: vocabulary: all buckets have a row of the table .text: hash.",
        ),
        (
            {"text": {"hash": {"buckets": 10**7}}},
            {"name": "bag"},
            r"corpus\.text.*buckets: should be less than .* 5000000",
        ),
        ({}, {"name": "vectors", "order": "first"}, "order: first selects words of a text, and words: all"),
        ({"text": "hash"}, {"name": "bag", "embedding": {"init": "word2vec"}}, "word2vec has vectors of words"),
        ({"max_length": None}, {"name": "lstm"}, "corpus.max_length: model lstm processes a text word by word"),
        ({"name": "movielens", "max_length": 9}, {"name": "lstm"}, "corpus.features: model lstm"),
    ],
)
def test_what_a_model_cannot_read_is_refused(corpus: dict, model: dict, complaint: str) -> None:
    content = {"name": "x", "corpus": {"name": "demo"} | corpus, "model": model, "method": "fedavg"}
    with pytest.raises(UserError, match=complaint):
        files.validate(content)
