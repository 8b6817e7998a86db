"""The words of a client's texts, inferred without optimization from the embedding rows that it sent or changed.

Legend: N rows that were sent, V vocabulary, D embedding.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.audits.base import Audit, LocalUpdate, Observation, State, Words
from fedtext.audits.recovery import f1
from fedtext.layout import TABLE


class EmbeddingRows(Audit):
    """Embedding rows: which words a client has, by the rows of its update.

    With ``wire.rows: own`` all rows that are sent belong to words of the train texts. With ``wire.rows: all`` the rows
    with a nonzero update do. If noise has changed every row, they are those that are longer than the noise explains:
    see ``threshold``.

    Precision, recall and F1 refer to the set of words in the client's train texts; ``rows_ptlr`` is the recall of words
    that contain a digit. It is left out if there are no such words.
    """

    name: Literal["embedding_rows"] = "embedding_rows"
    threshold: Literal["noise", "gap"] = Field(
        "noise",
        description="which rows are taken for the client's if all have changed; noise: those longer than noise "
        "explains; gap: those beyond the widest gap between lengths",
    )
    metrics = ("rows_precision", "rows_recall", "rows_f1", "rows_ptlr")
    needs_table = True

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        data, update = local.data, local.update
        named = _set(data.rows_R[np.unique(data.train.tokens_T)], words)
        if update.rows is not None:
            found = _set(update.rows, words)
        else:
            squares_V = np.square(update.tensors[TABLE], dtype=np.float64).sum(1)
            moved_V = squares_V > 0
            if moved_V.all():
                moved_V = stands_out(squares_V) if self.threshold == "noise" else above_gap(squares_V)
            found = _set(np.flatnonzero(moved_V).astype(np.int32), words)
        digits = words.digits if local.known.experiment.corpus.text.name != "hash" else np.zeros_like(words.digits)
        return Rows(found, named, digits[named]) if len(named) else None


@dataclass(frozen=True)
class Rows(Observation):
    """Rows of words, ascending."""

    found: NDArray[np.int32]
    named: NDArray[np.int32]  # those of the train texts
    digits: NDArray[np.bool_]  # which of these contain a digit

    def metrics(self, shared: State) -> dict[str, float]:
        hit = np.isin(self.named, self.found)
        precision = hit.sum() / len(self.found) if len(self.found) else 0.0
        recall = float(hit.mean())
        values = {"rows_precision": float(precision), "rows_recall": recall, "rows_f1": f1(float(precision), recall)}
        return values | ({"rows_ptlr": float(hit[self.digits].mean())} if self.digits.any() else {})

    def report(self, shared: State, words: Words) -> dict[str, str]:
        return {}


def stands_out(squares_V: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the rows that are longer than noise explains, if fewer than half of all are words of the client.

    The cube root of the squared length of noise is nearly normal (Wilson and Hilferty 1931). Its mean and deviation are
    estimated by the median of all rows and their median deviation. The threshold is the quantile 1 - 1 / (V + 1).
    """
    roots_V = np.cbrt(squares_V)
    middle = np.median(roots_V)
    spread = 1.4826 * np.median(np.abs(roots_V - middle))
    return roots_V > middle + NormalDist().inv_cdf(1 - 1 / (len(roots_V) + 1)) * spread


def above_gap(squares_V: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the rows beyond the widest gap between consecutive sorted lengths."""
    lengths_V = np.sort(np.sqrt(squares_V))
    if len(lengths_V) < 2:
        return np.ones(len(lengths_V), np.bool_)
    place = int(np.diff(lengths_V).argmax())
    return np.sqrt(squares_V) >= lengths_V[place + 1] - math.ulp(lengths_V[place + 1])


def _set(rows: NDArray[np.int32], words: Words) -> NDArray[np.int32]:
    """Return the rows that are words and not special tokens, ascending."""
    return np.unique(rows[words.named[rows]])
