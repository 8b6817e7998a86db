"""Test texts that training has already seen: how they are recognised, counted and dropped (``corpus.drop_leaked``).

Two texts are the same if they agree in all letters and digits, regardless of case, blanks and punctuation. This allows
a comparison of FDU-MTL's tokenized labelled reviews with its raw unlabeled ones. The marks of a letter, such as the
vowel signs of Hindi, belong to it. Whole texts are compared: messages with the same headers have the same beginning and
are still different. A text without a letter or digit is never the same as another one. Features, if there are any, must
agree as well.

``all`` compares with the unlabeled texts whether or not vectors are trained on them, so that every experiment on a
corpus has the same test texts. Whether a leaked text is also in its own client's train split depends on the partition;
``all`` leaves out the same texts under every partition.

Only evaluated texts are dropped, never those in train. The training, with all its random draws, is then the same under
all values of the key, and only the evaluated texts differ.

Legend: N texts.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import ClientData, Leaks, RawClient, Split, TokenSet

DropLeaked: TypeAlias = Literal["none", "own", "all"]
_NEITHER_ASCII = bytes(code for code in range(128) if not chr(code).isalnum())


def identities(split: Split, exact: bool = False) -> list[bytes]:
    """Return one key for each text, equal for texts that are the same.

    Args:
        split: The texts.
        exact: Whether case, blanks and punctuation must agree as well.

    Returns:
        Keys of 16 bytes. The key of a text without letters and digits is empty: it is the same as no other text.
    """
    keys = [text.encode("utf-8", "surrogatepass") if exact else _letters_and_digits(text) for text in split.texts]
    if split.features is not None:
        keys = [b"%s\0%s" % (key, numbers) for key, numbers in zip(keys, split.features.identities(), strict=True)]
    return [hashlib.blake2b(key, digest_size=16).digest() if key else b"" for key in keys]


def repeated_tests(clients: Sequence[RawClient], exact: bool) -> tuple[NDArray[np.bool_], ...]:
    """Return which of each client's test texts are also in the train split of any client.

    Args:
        clients: The clients, with the texts that are used.
        exact: As in ``identities``.
    """
    trained = {key for client in clients for key in identities(client.train, exact)} - {b""}
    return tuple(np.array([key in trained for key in identities(client.test, exact)], bool) for client in clients)


def encoded_identities(tokens: TokenSet) -> list[bytes]:
    """Return one key of at most 16 bytes for each encoded text, equal for texts with the same tokens."""
    texts = np.split(tokens.tokens_T, tokens.offsets[1:-1]) if len(tokens) else []
    return [hashlib.blake2b(text_T.tobytes(), digest_size=16).digest() for text_T in texts]


def encoded_repeated_tests(client: ClientData, others: Set[bytes]) -> NDArray[np.bool_]:
    """Return which of a client's encoded test texts have the same tokens as a train text of its own or of others.

    Args:
        client: The client.
        others: The ``encoded_identities`` of train texts of other clients.
    """
    trained = set(encoded_identities(client.train))
    return np.array([key in trained or key in others for key in encoded_identities(client.test)], bool)


class _Kept(dict[int, int | None]):
    """A table for ``str.translate`` that keeps letters with their marks, and digits."""

    def __missing__(self, code: int) -> int | None:
        of_emoji = 0xFE00 <= code <= 0xFE0F  # variation selectors count as marks
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" and not of_emoji else None
        return self[code]


_KEPT = _Kept()


def _letters_and_digits(text: str) -> bytes:
    text = text.casefold()
    if text.isascii():
        return text.encode("ascii").translate(None, _NEITHER_ASCII)
    kept = unicodedata.normalize("NFC", text).translate(_KEPT)
    return kept.encode("utf-8", "surrogatepass") if any(map(str.isalnum, kept)) else b""


@dataclass(frozen=True)
class Where:
    """Where else each of N evaluated texts of a client occurs."""

    own_N: NDArray[np.bool_]  # in the client's own train split
    others_N: NDArray[np.bool_]  # in another client's train split, and not in its own
    unlabeled_N: NDArray[np.bool_] | None  # in the corpus's unlabeled texts; None: these were not read

    def count(self) -> Leaks:
        """Return the number of leaked texts of each kind."""
        train_N = self.own_N | self.others_N
        return Leaks(
            own=int(self.own_N.sum()),
            others=int(self.others_N.sum()),
            unlabeled=None if self.unlabeled_N is None else int(self.unlabeled_N.sum()),
            unlabeled_only=0 if self.unlabeled_N is None else int((self.unlabeled_N & ~train_N).sum()),
        )

    def kept(self, drop: DropLeaked) -> NDArray[np.int64]:
        """Return the indices of the texts that remain under this value of ``corpus.drop_leaked``."""
        dropped_N = np.zeros_like(self.own_N) if drop == "none" else self.own_N
        if drop == "all":
            dropped_N = dropped_N | self.others_N
            if self.unlabeled_N is not None:
                dropped_N = dropped_N | self.unlabeled_N
        return np.flatnonzero(~dropped_N)


class Seen:
    """The texts that training sees: each client's train split, and the corpus's unlabeled texts.

    Args:
        train: identities of each client's train texts.
        unlabeled: identities of the unlabeled texts; None if they were not read.
    """

    def __init__(self, train: Sequence[Sequence[bytes]], unlabeled: Sequence[bytes] | None) -> None:
        self._own = [set(keys) - {b""} for keys in train]
        self._holders = Counter(key for own in self._own for key in own)
        self._unlabeled = None if unlabeled is None else set(unlabeled) - {b""}

    def find(self, client: int, keys: Sequence[bytes]) -> Where:
        """Find out where else the evaluated texts of a client occur, by their identities ``keys``."""
        own_N = np.array([key in self._own[client] for key in keys], bool)
        anyone_N = np.array([key in self._holders for key in keys], bool)
        unlabeled = self._unlabeled
        return Where(
            own_N,
            anyone_N & ~own_N,
            None if unlabeled is None else np.array([key in unlabeled for key in keys], bool),
        )
