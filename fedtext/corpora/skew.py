"""How unevenly a corpus's classes are distributed over its clients. Legend: K clients, C classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import Corpus

_LEVELS = "·▁▂▃▄▅▆▇█"
_WIDEST = 40  # classes that are shown one by one


@dataclass(frozen=True)
class Skew:
    """Number of train and test texts of each class at each client."""

    train_KC: NDArray[np.int64]
    test_KC: NDArray[np.int64]

    @classmethod
    def of(cls, corpus: Corpus) -> "Skew":
        """Count the texts of a corpus."""
        sides = [[c.train for c in corpus.clients], [c.test for c in corpus.clients]]
        train, test = (np.array([np.bincount(t.labels_N, minlength=corpus.classes) for t in side]) for side in sides)
        return cls(train, test)

    @property
    def apart(self) -> NDArray[np.float64]:
        """Total variation between the class proportions of each client's train and test texts, 0 to 1."""
        return np.abs(_shares(self.train_KC) - _shares(self.test_KC)).sum(1) / 2

    def cells(self) -> list[tuple[str, str]]:
        """Return the effective number of classes and a bar chart of the train texts, for each client and for the total.

        The chart has one character for each class, from a dot (no train text) to a full block (all of them). It is
        empty if there are more than 40 classes.
        """
        counts_KC = np.concatenate([self.train_KC, self.train_KC.sum(0, keepdims=True)])
        levels_KC = np.ceil(_shares(counts_KC) * (len(_LEVELS) - 1)).astype(int)
        bars = ["".join(_LEVELS[level] for level in levels_C) for levels_C in levels_KC]
        few = counts_KC.shape[1] <= _WIDEST
        return [(f"{count:.1f}", bar if few else "") for count, bar in zip(effective(counts_KC), bars, strict=True)]

    def sentences(self, bars: bool = True) -> list[str]:
        """Explain the columns, and summarize sizes and class proportions.

        Args:
            bars: Whether the charts of ``cells`` are in the table.
        """
        sizes_K, tested_K = self.train_KC.sum(1), self.test_KC.sum(1)
        effective_K, apart_K = effective(self.train_KC), self.apart
        return [
            f"classes: exp(entropy) over a client's train texts, {effective_K.mean():.1f} on average "
            f"({effective_K.min():.1f} to {effective_K.max():.1f})"
            f"{', and a bar for each class: its share of them' if bars else ''}.",
            f"sizes: {sizes_K.min():,} to {sizes_K.max():,} train and {tested_K.min():,} to {tested_K.max():,} test "
            "texts for each client. Total variation between the classes of its train and its test texts: "
            f"{apart_K.mean():.1%} on average, {apart_K.max():.1%} at most.",
        ]


def effective(counts_KC: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute the effective number of classes of each row: exp(entropy), which is C for C equally large classes."""
    share_KC = _shares(counts_KC)
    return np.exp(-(share_KC * np.log(np.where(share_KC > 0, share_KC, 1))).sum(1))


def _shares(counts_KC: NDArray[np.int64]) -> NDArray[np.float64]:
    return counts_KC / counts_KC.sum(1, keepdims=True)
