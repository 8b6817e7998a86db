"""Words of texts, and vocabularies."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fedtext.corpora.fdu import FDUCorpus
from fedtext.corpora.types import RawCorpus
from fedtext.corpora.vectors import texts_for_vectors
from fedtext.text.tokens import Unlabeled, decode, encode, like_tokens, penn_tokens, sizes, split_words
from fedtext.text.vocabulary import WordIndex, build_vocabulary, count_words
from tests.data import real_data


def test_words_are_what_stands_between_blanks() -> None:
    assert split_words(" it 's  a-ok,\tfine\n") == ["it", "'s", "a-ok,", "fine"]
    assert split_words("a b c", 2) == ["a", "b"]
    assert split_words("", 2) == []


def test_encode_and_decode_by_hand() -> None:
    vocabulary = ["<pad>", "<unk>", "a", "b"]
    tokens_T, offsets = encode(["b a b a", "", "x <pad> b"], WordIndex(vocabulary), max_length=3)
    assert tokens_T.tolist() == [3, 2, 3, 1, 1, 1, 3]
    assert offsets.tolist() == [0, 3, 4, 7]
    same = np.arange(4, dtype=np.int32)
    assert decode(tokens_T, offsets, same, vocabulary) == [["b", "a", "b"], ["<unk>"], ["<unk>", "<unk>", "b"]]


def test_the_bytes_of_a_sentence_are_its_words_the_blanks_between_and_one_for_its_end() -> None:
    sentences = ["<s> the café </s>", "<s> a </s>", "<s> </s>"]
    none = np.zeros(3, np.int64)
    assert sizes(sentences, None, none).tolist() == [len("the café\n".encode()), 2, 1]
    assert sizes(sentences, None, np.array([1, 0, 0])).tolist() == [len(" café\n".encode()), 2, 1]
    assert len("é".encode()) == 2
    assert sizes(sentences, 3, none).tolist() == [len("the café".encode()), 2, 1], "what is cut off is not counted"
    assert sizes([], None, none[:0]).tolist() == []


def test_vocabulary_sums_clients_and_breaks_ties_alphabetically() -> None:
    first, second = count_words(["b c c", "z"]), count_words(["b a y", "<unk> <unk> <unk> <pad> <pad> <pad>"])
    assert first == Counter(b=1, c=2, z=1)
    assert build_vocabulary([first, second], 10) == ["<pad>", "<unk>", "b", "c", "a", "y", "z"]
    assert build_vocabulary([second, first], 3) == ["<pad>", "<unk>", "b", "c", "a"]
    assert first == Counter(b=1, c=2, z=1)  # the client's own counts are left as they were


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("It's OK, isn't it?", "it 's ok , is n't it ?"),
        ('He said "Buy it!" twice.', "he said `` buy it ! '' twice ."),
        ("We'll see... I'd've gone", "we 'll see ... i'd 've gone"),
        ("Paid $1,200 (50% off) at 2:00.", "paid $ 1,200 ( 50 % off ) at 2:00 ."),
        ("I cannot -- and won't -- stop", "i can not -- and wo n't -- stop"),
        ("Mr. Smith of the U.S. army", "mr. smith of the u.s. army"),
        ("My friends' 2.5 inch TV.It broke", "my friends ' 2.5 inch tv.it broke"),
        ("You're gonna love it; well-made & solid", "you 're gon na love it ; well-made & solid"),
        ("  ", ""),
    ],
)
def test_raw_text_is_cut_like_the_labelled_reviews(raw: str, words: str) -> None:
    assert penn_tokens(raw) == words


def test_unlabeled_fdu_is_cut_like_labelled_fdu() -> None:
    """Labelled Amazon reviews, with their quotation marks made plain again, come out of the cutting as they were."""
    data = real_data("fdu_mtl/fdu_mtl.parquet")
    kept = total = 0
    for text in FDUCorpus(clients=("baby", "music")).read(data, 0).clients[0].train.texts[:300]:
        before = Counter(text.split())
        again = Counter(penn_tokens(text.replace("``", '"').replace("''", '"')).split())
        kept, total = kept + (before & again).total(), total + before.total()
    assert kept / total > 0.99


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({}, ["it", "'s", "a", "great", "product", "."]),
        ({"stopwords": "drop"}, ["great", "product", "."]),
        ({"letters": True}, ["it", "s", "a", "great", "product"]),
    ],
)
def test_words_of_unlabeled_texts_are_those_of_labelled_ones(
    text: dict[str, Any], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FDUCorpus.model_validate({"text": {"words": text}})
    monkeypatch.setattr(FDUCorpus, "read_unlabeled", lambda *_: [Unlabeled("It's a Great product.", raw=True)])
    (found,) = texts_for_vectors(config, None, 0, RawCorpus("fdu", 2, []), "unlabeled")
    assert found.words() == words
    assert config.text.clean("it 's a great product .").split() == words


@pytest.mark.parametrize("text", ["\ue000", "a \ue000\ue000 b", "\ue000 a\ue000b \ue000\ue000\ue000"])
@pytest.mark.parametrize("known", [(), ("\ue000",), ("a", "b"), ("\ue000\ue000", "a")])
def test_a_private_character_is_a_word_in_predictions_as_in_training(text: str, known: tuple[str, ...]) -> None:
    assert like_tokens(text, known).split() == split_words(text)
