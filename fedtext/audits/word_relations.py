"""Nearest neighbours of words in the embedding, and how many of them the server can see (KTEPS paper, section 5.6.3).

Legend: N the client's own words, P probe words among them, K neighbours, D embedding, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.audits.base import Audit, LocalUpdate, Observation
from fedtext.audits.known import State, Words
from fedtext.layout import TABLE
from fedtext.runtime.markdown import plain
from fedtext.runtime.threads import one_blas_thread
from fedtext.text.vocabulary import SPECIAL

FILE = "word_relations.md"


class WordRelations(Audit):
    """Word relations (KTEPS paper, Figure 5): how many of a word's nearest neighbours an update discloses.

    Take the ``top`` nearest neighbours (by cosine) of each of ``words`` in the client's own embedding after its
    training. ``I_ser`` is the share of them that are also among the nearest neighbours in the embedding that the server
    restores from the client's payload, ``I_ag`` in the aggregated one. (The paper reports counts: K times the share.)

    Neighbours are words of the client's train texts. A probe word that is not one of them is skipped; a client without
    any has no metrics. Smaller shares mean that relations are harder to inspect.
    """

    name: Literal["word_relations"] = "word_relations"
    words: tuple[str, ...] = Field(min_length=1, description="probe words, as they are written in the corpus")
    top: int = Field(10, ge=1, description="K, the number of neighbours")
    metrics = ("I_ser", "I_ag")
    needs_table = True

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        no_words = [words.rows[entry] for entry in SPECIAL if entry in words.rows]
        held_N = np.unique(local.data.train.tokens_T)  # all rows are held with methods that move all
        places_N = held_N[~np.isin(local.data.rows_R[held_N], no_words)]
        rows_N = local.data.rows_R[places_N]
        wanted = [words.rows[word] for word in dict.fromkeys(self.words) if word in words.rows]
        probes_P = np.array([place for row in wanted for place in np.flatnonzero(rows_N == row)], np.int64)
        if not len(probes_P) or len(rows_N) < 2:
            return None
        changed = local.update.tensors[TABLE]
        restored_ND = local.received[TABLE][rows_N]
        if local.update.rows is None:
            restored_ND += changed[rows_N]
        else:  # rows that were not sent are unchanged
            _, here, there = np.intersect1d(rows_N, local.update.rows, return_indices=True)
            restored_ND[here] += changed[there]
        own_ND = local.trained[TABLE].numpy()[places_N]
        near = [neighbours(table_ND, probes_P, self.top) for table_ND in (own_ND, restored_ND)]
        return Relations(local.data.name, rows_N, probes_P, self.top, *near)

    def blind(self, vocabulary: list[str]) -> str:
        if set(self.words) & set(vocabulary):
            return ""
        return f"word_relations.words: none of {', '.join(self.words)} is in the corpus's vocabulary: name other words"


@dataclass(frozen=True)
class Relations(Observation):
    """The neighbours of a client's probe words, as indices of its own words; rows_N are their global rows."""

    client: str
    rows_N: NDArray[np.int32]
    probes_P: NDArray[np.int64]
    top: int
    own_PK: NDArray[np.int64]
    restored_PK: NDArray[np.int64]

    def metrics(self, shared: State) -> dict[str, float]:
        return {"I_ser": kept(self.own_PK, self.restored_PK), "I_ag": kept(self.own_PK, self._aggregated(shared))}

    def report(self, shared: State, words: Words) -> dict[str, str]:
        names = [plain(words.names[row]) for row in self.rows_N]
        lines = [
            f"# The {self.top} nearest words at {plain(self.client)}",
            "",
            "Nearest first, by cosine among the client's own words. Bold: also in the client's own list.",
            "",
            "| word | client | server | aggregated |",
            "| --- | --- | --- | --- |",
        ]
        lists = zip(self.own_PK, self.restored_PK, self._aggregated(shared), strict=True)
        for probe, (own_K, *others) in zip(self.probes_P, lists, strict=True):
            cells = [", ".join(names[place] for place in own_K)]
            for near_K in others:
                bold = np.isin(near_K, own_K)
                cells.append(", ".join(f"**{names[n]}**" if b else names[n] for n, b in zip(near_K, bold, strict=True)))
            lines.append(f"| {names[probe]} | {' | '.join(cells)} |")
        return {FILE: "\n".join(lines) + "\n"}

    def _aggregated(self, shared: State) -> NDArray[np.int64]:
        return neighbours(shared[TABLE][self.rows_N], self.probes_P, self.top)


def neighbours(table_ND: NDArray[np.float32], probes_P: NDArray[np.int64], top: int) -> NDArray[np.int64]:
    """Find the nearest neighbours of rows by cosine.

    Args:
        table_ND: The rows. The cosine with a row of zeros is 0.
        probes_P: Indices of the rows whose neighbours are wanted.
        top: Number of neighbours K; all other rows if there are fewer.

    Returns:
        Indices of shape (P, K), the nearest first; of equally near rows the one with the smaller index first.
    """
    lengths_N = np.linalg.norm(table_ND.astype(np.float64), axis=1)
    unit_ND = table_ND / np.where(lengths_N > 0, lengths_N, 1)[:, None]
    with one_blas_thread():
        cosines_PN = unit_ND[probes_P] @ unit_ND.T
    cosines_PN[np.arange(len(probes_P)), probes_P] = -np.inf
    return np.argsort(-cosines_PN, axis=1, kind="stable")[:, : min(top, len(table_ND) - 1)]


def kept(before_PK: NDArray[np.int64], after_PK: NDArray[np.int64]) -> float:
    """Compute the share of the neighbours that are still neighbours, over all probe words."""
    still = [len(np.intersect1d(before, after)) for before, after in zip(before_PK, after_PK, strict=True)]
    return sum(still) / before_PK.size
