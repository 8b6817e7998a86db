"""Texts of users, encoded in words of a lexicon, block by block.

Legend: K users of a block, N texts of them, T tokens laid end to end, L words of the lexicon.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import ClientData, RawClient, Split
from fedtext.text.tokens import BOS, EOS, PAD, UNK

SIDES = ("train", "validation", "test")
_BELOW = 1 - 1e-12  # 0.28 * 25 is more than 7 in floating point


class Lexicon(dict[str, int]):
    """The id of every word that has been met. New words get the next id. The special tokens come first.

    Args:
        words: Words that are known from the beginning.
    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        super().__init__({word: id_ for id_, word in enumerate(dict.fromkeys((PAD, UNK, BOS, EOS, *words)))})

    def __missing__(self, word: str) -> int:
        self[word] = id_ = len(self)
        return id_


@dataclass(frozen=True)
class Users:
    """The texts of K users: train, validation and test texts of the first user, then those of the next one.

    Attributes:
        names: Names of the users.
        texts_K3: Number of train, validation and test texts of each user.
        lengths_N: Number of tokens of each text.
        tokens_T: Ids of the tokens in the lexicon, with ``<s>`` and ``</s>``.
    """

    names: Sequence[str]
    texts_K3: NDArray[np.int64]
    lengths_N: NDArray[np.int64]
    tokens_T: NDArray[np.int32]

    def kept(self, share: float) -> "Users":
        """Return the same users with this share of their validation texts, the first ones."""
        if share == 1:
            return self
        left_K3 = self.texts_K3.copy()
        left_K3[:, 1] = np.ceil(share * left_K3[:, 1] * _BELOW)
        side_N = np.repeat(np.arange(self.texts_K3.size), self.texts_K3.ravel())
        place_N = np.arange(len(side_N)) - (np.cumsum(self.texts_K3) - self.texts_K3.ravel())[side_N]
        kept_N = place_N < left_K3.ravel()[side_N]
        return Users(self.names, left_K3, self.lengths_N[kept_N], self.tokens_T[np.repeat(kept_N, self.lengths_N)])

    def trains(self) -> NDArray[np.bool_]:
        """Return whether each text is a train text, shape (N,)."""
        return in_train(self.texts_K3)

    def cut(self, most: int | None) -> "Users":
        """Return the same users with the first ``most`` tokens of each text; None: all of them."""
        if most is None or not len(self.lengths_N) or self.lengths_N.max() <= most:
            return self
        place_T = np.arange(len(self.tokens_T)) - np.repeat(np.cumsum(self.lengths_N) - self.lengths_N, self.lengths_N)
        return Users(self.names, self.texts_K3, np.minimum(self.lengths_N, most), self.tokens_T[place_T < most])

    def decoded(self, words: Sequence[str]) -> Iterator[RawClient]:
        """Yield the users with their texts as words.

        Args:
            words: The words of the lexicon by their ids.
        """
        text = start = 0
        for name, sides_3 in zip(self.names, self.texts_K3.tolist(), strict=True):
            splits = {}
            for side, texts in zip(SIDES, sides_3, strict=True):
                found = []
                for length in self.lengths_N[text : text + texts].tolist():
                    found.append(" ".join([words[id_] for id_ in self.tokens_T[start : start + length]]))
                    start += length
                text += texts
                splits[side] = Split(found, np.zeros(texts, np.int64))
            yield RawClient(name, **splits)


class ContentDigest:
    """The digest of encoded texts, whether they are in memory or on disk, and however they are divided into parts."""

    def __init__(self) -> None:
        self.names, self.texts, self.lengths, self.tokens = (hashlib.sha256() for _ in range(4))

    def add(self, texts_K3: NDArray[np.integer], lengths_N: NDArray[np.integer], tokens_T: NDArray[np.integer]) -> None:
        """Add the next clients.

        Args:
            texts_K3: Their numbers of train, validation and test texts.
            lengths_N: The lengths of these texts.
            tokens_T: Their tokens, as rows of the vocabulary.
        """
        for hasher, values in ((self.texts, texts_K3), (self.lengths, lengths_N), (self.tokens, tokens_T)):
            hasher.update(np.ascontiguousarray(values, "<i4").data)

    def add_names(self, names: Sequence[str]) -> None:
        """Add the names of the next clients."""
        self.names.update("".join(f"{name}\0" for name in names).encode())

    def of(self, vocabulary: Sequence[str]) -> str:
        """Return the digest of all that was added, and of the vocabulary."""
        parts = (self.names, self.texts, self.lengths, self.tokens)
        whole = "\0".join([*(part.hexdigest() for part in parts), *vocabulary])
        return hashlib.sha256(whole.encode()).hexdigest()[:32]


def digest_of(vocabulary: Sequence[str], clients: Iterable[ClientData]) -> str:
    """Return the digest of the clients of a language corpus, which share the rows of its vocabulary."""
    digest = ContentDigest()
    for client in clients:
        sides = client.train, client.validation, client.test
        digest.add_names([client.name])
        lengths_N = np.concatenate([np.diff(side.offsets) for side in sides])
        digest.add(np.array([len(side) for side in sides]), lengths_N, np.concatenate([s.tokens_T for s in sides]))
    return digest.of(vocabulary)


def in_train(texts_K3: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return whether each text of some users is a train text, given how many they have of each side."""
    return np.repeat(np.tile([True, False, False], len(texts_K3)), texts_K3.ravel())


def encoded(names: Sequence[str], splits: Iterable[Sequence[Sequence[Sequence[str]]]], lexicon: Lexicon) -> Users:
    """Encode the sentences of users.

    Args:
        names: Names of the users.
        splits: For each user its train, validation and test sentences, each a list of words with ``<s>`` and ``</s>``.
        lexicon: Ids of words. Words that are new are added.
    """
    counts, lengths, tokens = list[list[int]](), list[int](), list[int]()
    for user in splits:
        counts.append([len(side) for side in user])
        for sentence in (sentence for side in user for sentence in side):
            lengths.append(len(sentence))
            tokens.extend(map(lexicon.__getitem__, sentence))
    return Users(
        names,
        np.array(counts, np.int64).reshape(-1, len(SIDES)),
        np.array(lengths, np.int64),
        np.array(tokens, np.int32),
    )


class Numbered(Sequence[str]):
    """Names of users that are numbered, made when they are asked for.

    Args:
        prefix: What each begins with.
        users: Number of users of the corpus.
        there: The users that are named; None: all.
    """

    def __init__(self, prefix: str, users: int, there: range | None = None) -> None:
        self.prefix, self.users, self.there = prefix, users, range(users) if there is None else there

    def __len__(self) -> int:
        return len(self.there)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return Numbered(self.prefix, self.users, self.there[index])
        return f"{self.prefix}{self.there[index] + 1:0{len(str(self.users))}}"
