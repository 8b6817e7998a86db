"""Test texts that training has already seen: how they are recognised, counted and dropped (``corpus.drop_leaked``).

Two texts are the same if they agree in all letters and digits, whatever their case, blanks and punctuation: the
segmented labelled reviews of FDU-MTL and its raw unlabeled ones can be compared only so. Whole texts are compared,
since a prefix mistakes messages with the same headers for one another. A text without a letter or digit is never the
same as another one. Features, if there are any, must agree as well.

``all`` looks among the unlabeled texts whether or not vectors are trained on them, so that every experiment on a corpus
has the same test texts. Under a partition it depends on who was given which texts whether a leaked one is the client's
own, and ``all`` leaves out the same ones under every partition.

It is always the evaluated text that is dropped, and never the text in train: what is trained, and every random draw of
it, is then the same under all values of the key, and only the texts that are evaluated differ.

Legend: N texts.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import Leaks, Split

DropLeaked: TypeAlias = Literal["none", "own", "all"]
_NEITHER = re.compile(r"[\W_]+")
_NEITHER_ASCII = bytes(code for code in range(128) if not chr(code).isalnum())


def identities(split: Split, exact: bool = False) -> list[bytes]:
    """One key for each text, equal for texts that count as the same, and empty for a text that equals no other.
    ``exact``: case, blanks and punctuation count as well."""
    keys = [text.encode("utf-8", "surrogatepass") if exact else _letters_and_digits(text) for text in split.texts]
    if split.features is not None:
        keys = [b"%s\0%s" % (key, numbers) for key, numbers in zip(keys, split.features.identities(), strict=True)]
    return [hashlib.blake2b(key, digest_size=16).digest() if key else b"" for key in keys]


def _letters_and_digits(text: str) -> bytes:
    text = text.casefold()
    if text.isascii():
        return text.encode("ascii").translate(None, _NEITHER_ASCII)
    return _NEITHER.sub("", text).encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Where:
    """Where each of N evaluated texts of a client also stands."""

    own_N: NDArray[np.bool_]  # in the client's own train split
    others_N: NDArray[np.bool_]  # in another client's train split, and not in its own
    unlabeled_N: NDArray[np.bool_] | None  # in the corpus's unlabeled texts; None: these were not read

    def count(self) -> Leaks:
        train_N = self.own_N | self.others_N
        return Leaks(
            own=int(self.own_N.sum()),
            others=int(self.others_N.sum()),
            unlabeled=None if self.unlabeled_N is None else int(self.unlabeled_N.sum()),
            unlabeled_only=0 if self.unlabeled_N is None else int((self.unlabeled_N & ~train_N).sum()),
        )

    def kept(self, drop: DropLeaked) -> NDArray[np.int64]:
        """The numbers of the texts that are left under this value of ``corpus.drop_leaked``."""
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
        """Where the texts of these identities, which are evaluated for this client, also stand."""
        own_N = np.array([key in self._own[client] for key in keys], bool)
        anyone_N = np.array([key in self._holders for key in keys], bool)
        unlabeled = self._unlabeled
        return Where(
            own_N,
            anyone_N & ~own_N,
            None if unlabeled is None else np.array([key in unlabeled for key in keys], bool),
        )
