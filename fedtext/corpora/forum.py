"""A generated corpus in the shape of a large forum, such as StackOverflow: very many users who write very unequally.

Every number is a hash of (seed, user, place), so that a user's texts can be made without those of any other user.
Legend: K users, S sentences, L words of the lexicon.
"""

from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.corpora.streamed import StreamedCorpus, by_time
from fedtext.corpora.users import Lexicon, Numbered, Users
from fedtext.seeding import derive, generator
from fedtext.text.tokens import BOS_ID, EOS_ID

BLOCK = 4_000  # users that are made together
LEAST, MOST_WORDS = 3, 18  # words of a sentence
OWN_TOPICS = 3  # of a user
FOLLOWS, ON_TOPIC, TRENDING = 0.4, 0.5, 0.1  # shares: words after another, of a topic; sentences on what is new
FINE = 1 << 20  # equally likely cells of a word distribution
SPECIAL = EOS_ID + 1
SYLLABLES = [consonant + vowel for consonant in "bdfghklmnprstvz" for vowel in "aeiou"]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class _Tables(NamedTuple):
    """The words and topics that all users share.

    Attributes:
        words_F: The rank of a word for each cell of Zipf's distribution, shape (FINE,).
        next_L: The word that often follows each word.
        start_T: The word to which each topic's most frequent word is mapped.
    """

    words_F: NDArray[np.int32]
    next_L: NDArray[np.int32]
    start_T: NDArray[np.int64]


class ForumCorpus(StreamedCorpus):
    """A generated forum: users with very different numbers of sentences, topics of their own, and dates.

    The numbers of sentences are log-normal. A user writes mostly on three topics, and on what is new at that date.
    Words follow Zipf's law, each topic has its own frequent words, and a word is often followed by the same next word.
    Sentences are in the order of their dates: a user's last tenth is for test, and the tenth before for validation.
    """

    name: Literal["forum"] = "forum"
    clients: int = Field(1000, ge=1, description="number of users, each of whom is a client")
    sentences: Literal["lines"] = Field("lines", description="sentences are generated one by one")
    median: float = Field(16.0, ge=3, description="sentences of a user, median over users")
    spread: float = Field(1.0, ge=0, le=3, description="standard deviation of the logarithm of a user's sentences")
    most: int = Field(1000, ge=3, description="most sentences of a user")
    topics: int = Field(50, ge=3, description="number of topics")
    lexicon_size: int = Field(10_000, ge=10, le=300_000, description="number of different words")
    vocabulary: int = Field(10_000, ge=1, description="most frequent words kept, by summed client counts of train")

    @property
    def draws_clients(self) -> bool:
        return True

    def clients_of(self, seed: int) -> Set[str]:
        return {f"{self.name} {seed}"}  # the first ones are the same, however many there are

    def lexicon(self) -> Lexicon:
        return Lexicon(map(spelled, range(self.lexicon_size)))

    def source(self, data: Path | None, seed: int) -> str:
        keys = ("clients", "median", "spread", "most", "topics", "lexicon_size")
        return " ".join(["forum 1", str(seed), *(f"{key}={getattr(self, key)!r}" for key in keys)])

    def blocks(self, data: Path | None, seed: int, lexicon: Lexicon) -> Iterator[Users]:
        for start in range(0, self.clients, BLOCK):
            yield self.users(seed, range(start, min(start + BLOCK, self.clients)))

    def users(self, seed: int, chosen: Sequence[int]) -> Users:
        """Make the texts of some users.

        Args:
            seed: Seed of everything that is drawn.
            chosen: Numbers of the users.
        """
        tables = _tables(seed, self.lexicon_size, self.topics)
        users_K = np.asarray(chosen, np.int64)
        key_K = _mixed(_U64(derive(seed, "forum")) + _U64(users_K + 1) * GOLDEN)
        normal_K = np.sqrt(-2 * np.log(1 - _unit(key_K, 0))) * np.cos(2 * np.pi * _unit(key_K, 1))
        texts_K = np.clip(np.rint(self.median * np.exp(self.spread * normal_K)), 3, self.most).astype(np.int64)
        user_S = np.repeat(np.arange(len(users_K)), texts_K)
        place_S = np.arange(len(user_S)) - np.repeat(np.cumsum(texts_K) - texts_K, texts_K)
        key_S = _mixed(key_K[user_S] ^ _mixed(_U64(place_S + 1)))
        joined_S = _unit(key_K, 2)[user_S]
        date_S = joined_S + (1 - joined_S) * (place_S + _unit(key_S, 0)) / texts_K[user_S]
        topic_S = self._topics(key_K, key_S, user_S, date_S)
        lengths_S = np.minimum(LEAST + (-6 * np.log(1 - _unit(key_S, 1))).astype(np.int64), MOST_WORDS)
        names = [Numbered("user-", self.clients)[user] for user in users_K.tolist()]
        tokens_T = _sentences(tables, key_S, topic_S, lengths_S)
        return Users(names, by_time(texts_K), lengths_S + 2, tokens_T)

    def _topics(
        self,
        key_K: NDArray[np.uint64],
        key_S: NDArray[np.uint64],
        user_S: NDArray[np.int64],
        date_S: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Return the topic of each sentence: one of its user's, the first most often, or one that is new."""
        own_KO = np.stack([_unit(key_K, 3 + topic) for topic in range(OWN_TOPICS)], 1)
        which_S = np.minimum((OWN_TOPICS * _unit(key_S, 2) ** 2).astype(np.int64), OWN_TOPICS - 1)
        at_S = np.where(_unit(key_S, 3) < TRENDING, date_S, own_KO[user_S, which_S])
        return np.minimum((self.topics * at_S).astype(np.int64), self.topics - 1)


def spelled(rank: int) -> str:
    """Return a pronounceable word for each rank; frequent words are shorter."""
    word, left = "", rank + 1
    while left:
        left, syllable = divmod(left - 1, len(SYLLABLES))
        word = SYLLABLES[syllable] + word
    return word


@lru_cache(maxsize=2)
def _tables(seed: int, words: int, topics: int) -> _Tables:
    chances_L = 1 / np.arange(1, words + 1)
    edges_L = np.rint(FINE * np.cumsum(chances_L) / chances_L.sum()).astype(np.int64)
    words_F = np.repeat(np.arange(words, dtype=np.int32), np.diff(edges_L, prepend=0))
    draws = generator(seed, "forum tables")
    return _Tables(words_F, words_F[draws.integers(FINE, size=words)], draws.integers(words, size=topics))


def _sentences(
    tables: _Tables, key_S: NDArray[np.uint64], topic_S: NDArray[np.int64], lengths_S: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the tokens of sentences laid end to end, each from <s> to </s>."""
    words = len(tables.next_L)
    ends_S = np.cumsum(lengths_S + 2)
    starts_S = ends_S - lengths_S - 2
    tokens_T = np.empty(ends_S[-1] if len(ends_S) else 0, np.int32)
    tokens_T[starts_S], tokens_T[ends_S - 1] = BOS_ID, EOS_ID
    there_S = np.arange(len(key_S))
    shift_S = tables.start_T[topic_S]
    before_S = np.zeros(len(key_S), np.int32)
    for place in range(int(lengths_S.max(initial=0))):
        there_S = there_S[lengths_S[there_S] > place]
        drawn_S = _mixed(key_S[there_S] + _U64(place + 8) * GOLDEN)
        kind_S = (drawn_S & _U64(0xFFFF)).astype(np.float32) / 0x10000
        word_S = tables.words_F[(drawn_S >> _U64(44)).astype(np.int64)]
        topical_S = (word_S + shift_S[there_S]) % words
        word_S = np.where(kind_S < FOLLOWS + (1 - FOLLOWS) * ON_TOPIC, topical_S, word_S)
        if place:
            word_S = np.where(kind_S < FOLLOWS, tables.next_L[before_S[there_S]], word_S)
        before_S[there_S] = word_S
        tokens_T[starts_S[there_S] + place + 1] = word_S + SPECIAL
    return tokens_T


def _U64(value: int | NDArray[np.int64]) -> NDArray[np.uint64]:  # noqa: N802
    return np.asarray(value).astype(np.uint64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of numbers (the finalizer of SplitMix64; Steele et al. 2014)."""
    values = (values ^ (values >> _U64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> _U64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> _U64(31))


def _unit(keys: NDArray[np.uint64], number: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each key, another one for each ``number``."""
    return (_mixed(keys + _U64(number + 1) * GOLDEN) >> _U64(11)).astype(np.float64) / 2.0**53
