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

from fedtext.audits.base import Audit, LocalUpdate, Observation
from fedtext.audits.known import State, Words
from fedtext.audits.recovery import f1
from fedtext.layout import TABLE
from fedtext.models.places import places_of

_SHORTEST = 0.1  # share of the rows to which noise is fitted


class EmbeddingRows(Audit):
    """Embedding rows: which words a client has, by the rows of its update.

    With ``wire.rows: own`` all rows that are sent belong to words of the train texts. With ``wire.rows: all`` the rows
    with a nonzero update do. If noise has changed every row, they are those that are longer than the noise explains:
    see ``threshold``. The attacker knows the size of noise that mechanisms state. Of other noise, and of a model
    whose output layer is the table, in which training changes every row, it estimates the length of other rows by the
    median of all rows, which finds few words or none of a client that has a third of the vocabulary or more.

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
                by_noise = self.threshold == "noise"
                moved_V = stands_out(squares_V, known_noise(local)) if by_noise else above_gap(squares_V)
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


@dataclass(frozen=True)
class Noise:
    """Independent Gaussian noise on the coordinates of a row.

    The cube root of its squared length is nearly normal (Wilson and Hilferty 1931).

    Attributes:
        variance: Its variance on a coordinate; None: unknown.
        dim: Number of coordinates.
    """

    variance: float | None
    dim: int

    def roots(self, roots_V: NDArray[np.float64]) -> tuple[float, float]:
        """Return mean and standard deviation of the cube root of the squared length.

        Args:
            roots_V: Those of all rows. An unknown variance is fitted to the shortest tenth, which is noise unless the
                client has nearly all words; if it has many, the fitted one is somewhat larger than the true one.
        """
        relative = 2 / (9 * self.dim)
        if self.variance is None:
            lower = 1 - relative + NormalDist().inv_cdf(_SHORTEST) * math.sqrt(relative)
            length = float(np.quantile(roots_V, _SHORTEST)) / lower
        else:
            length = float(np.cbrt(self.variance * self.dim))
        return length * (1 - relative), length * math.sqrt(relative)


def known_noise(local: LocalUpdate) -> Noise | None:
    """Return the noise on rows of words that a client does not have; None if its distribution is not known.

    Its variance is unknown behind a mechanism that multiplies an update by an unknown factor, and with it the noise.

    Args:
        local: The local update, as the server decodes it.
    """
    model, shape = local.known.experiment.model, local.update.tensors[TABLE].shape
    variance, rescaled = 0.0, False
    for mechanism in local.known.experiment.uplink:
        keeps = mechanism.leaves({TABLE: shape}).get(TABLE) == shape
        if mechanism.bits or mechanism.whole or not keeps:
            return None
        if mechanism.deviation:
            variance += mechanism.deviation**2
        elif mechanism.randomises or (variance and not mechanism.rescales(None)):
            return None
        else:
            rescaled = rescaled or variance > 0
    if not variance or getattr(model, "tied", False) or _is_tied(local):  # training changes every row of a tied table
        return None
    return Noise(None if rescaled else variance, shape[1])


def _is_tied(local: LocalUpdate) -> bool:
    """Return whether the network, a plug-in's perhaps, has its embedding table in another place too."""
    tied = places_of(local.known.network).tied
    return TABLE in tied or TABLE in tied.values()


def stands_out(squares_V: NDArray[np.float64], noise: Noise | None = None) -> NDArray[np.bool_]:
    """Return the rows that are longer than noise explains, beyond its quantile 1 - 1 / (V + 1).

    Args:
        squares_V: The squared length of each row.
        noise: The noise; None: mean and deviation of the cube roots of squared lengths are estimated by the median of
            all rows and their median deviation, which needs that few of them, less than a third, are the client's.
    """
    roots_V = np.cbrt(squares_V)
    if noise:
        middle, spread = noise.roots(roots_V)
    else:
        middle = float(np.median(roots_V))
        spread = 1.4826 * float(np.median(np.abs(roots_V - middle)))
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
