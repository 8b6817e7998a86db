"""How much of some texts an attack has recovered (FedeVocab, section 4.2 and appendix A.3).

Precision is the share of recovered words that occur in the original, recall the share of the original's words that
occur in the recovered text. Both ignore how often a word occurs, as in the paper, and are means over texts; F1 is
computed from these two means. ``exact`` is the share of words that are recovered at their own place, and so depends on
order and multiplicity. PTLR, the privacy token leakage ratio, is the share of all words with a digit in the client's
texts that were recovered: in any of its texts (``ptlr``), or at their own places (``ptlr_exact``).

The order of recovered texts is unknown to an attack on several texts. Recovered and original texts are paired greedily,
those with the most words in common first, which is the best case for the attack. An original without a partner counts
as not recovered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtext.audits.known import Words
from fedtext.models.packing import Ints

FIGURES = ("precision", "recall", "f1", "exact", "ptlr", "ptlr_exact")


@dataclass(frozen=True)
class Pairing:
    """Original texts with the recovered text of each, as rows of the vocabulary.

    Attributes:
        texts: The originals.
        found: The recovered text of each original; empty if it has no partner.
        recovered: The rows of all recovered texts together.
    """

    texts: Sequence[Ints]
    found: Sequence[Ints]
    recovered: Ints

    def exact(self, words: Words) -> list[bool]:
        """Return of each original that has words whether every one of them is recovered, in order.

        Special tokens are ignored in both texts. A text of these alone is left out: there is nothing to recover.

        Args:
            words: The vocabulary.
        """
        return [
            np.array_equal(named_T, found_T[words.named[found_T]])
            for text_T, found_T in zip(self.texts, self.found, strict=True)
            if len(named_T := text_T[words.named[text_T]])
        ]

    def metrics(self, words: Words, digits: bool) -> dict[str, float]:
        """Compute the metrics, by name.

        Special tokens (padding, unknown words) are ignored in both texts.

        Args:
            words: The vocabulary.
            digits: Whether to compute PTLR. It is left out if the texts have no words with a digit.
        """
        precision, recall, exact, sensitive = [], [], [], np.zeros((0, 2), np.bool_)
        for text_T, found_T in zip(self.texts, self.found, strict=True):
            is_word_T = words.named[text_T]
            in_place_T = np.zeros(len(text_T), np.bool_)
            shared = min(len(text_T), len(found_T))
            in_place_T[:shared] = text_T[:shared] == found_T[:shared]
            hit_T = np.isin(text_T, found_T)
            named_T = found_T[words.named[found_T]]
            if is_word_T.any():
                recall.append(hit_T[is_word_T].mean())
                exact.append(in_place_T[is_word_T].mean())
                if len(found_T):
                    precision.append(np.isin(named_T, text_T).mean() if len(named_T) else 0.0)
            is_digit_T = is_word_T & words.digits[text_T]
            leaked_T = np.isin(text_T, self.recovered)
            sensitive = np.concatenate([sensitive, np.stack([leaked_T, in_place_T], 1)[is_digit_T]])
        if not recall:
            return {}
        p, r = float(np.mean(precision or [0.0])), float(np.mean(recall))
        values = {"precision": p, "recall": r, "f1": f1(p, r), "exact": float(np.mean(exact))}
        if digits and len(sensitive):
            values |= dict(zip(("ptlr", "ptlr_exact"), map(float, sensitive.mean(0)), strict=True))
        return values


def f1(precision: float, recall: float) -> float:
    """Compute the harmonic mean; 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def paired(
    texts: Sequence[Ints], found: Sequence[Ints], labels: NDArray[np.int64], guessed: NDArray[np.int64] | None
) -> Pairing:
    """Pair recovered with original texts greedily, by the sum of the shares of each text's words that are in the other.

    Args:
        texts: Originals, as rows of the vocabulary.
        found: Recovered texts.
        labels: Labels of the originals.
        guessed: Labels of the recovered texts, which only match originals with the same label; None matches any.
    """
    scores = np.full((len(texts), len(found)), -1.0)
    for place, text_T in enumerate(texts):
        for other, found_T in enumerate(found):
            if guessed is None or guessed[other] == labels[place]:
                scores[place, other] = np.isin(text_T, found_T).mean() + np.isin(found_T, text_T).mean()
    given: list[Ints] = [np.zeros(0, np.int64) for _ in texts]
    for _ in range(min(scores.shape)):
        place, other = map(int, np.unravel_index(scores.argmax(), scores.shape))
        if scores[place, other] < 0:
            break
        given[place] = found[other]
        scores[place], scores[:, other] = -1, -1
    return Pairing(texts, given, np.concatenate([np.zeros(0, np.int64), *found]))
