"""How much of some texts an attack has recovered (FedeVocab, section 4.2 and appendix A.3).

Precision is the share of recovered words that occur in the original, recall the share of the original's words that
occur in what was recovered: both of bags without multiplicity, as in the paper, and means over texts; F1 is of these
two means. Counted where they stand, a word is recovered only at its own place (``exact``): this is what minds order and
multiplicity. PTLR, the privacy token leakage ratio, is the share of all digit-bearing words of the client's texts that
were recovered: in any of its texts, or at their own places.

An attack on several texts does not say which is which. Recovered and original texts are paired greedily, those with the
most in common first: as the attack would have it at best. An original that nothing is left for is not recovered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtext.audits.base import Words
from fedtext.models.packing import Ints

FIGURES = ("precision", "recall", "f1", "exact", "ptlr", "ptlr_exact")


@dataclass(frozen=True)
class Pairing:
    """``found[i]`` is what was made of ``texts[i]``, rows of the vocabulary; empty if nothing was. ``recovered`` is all
    that was, whichever text it was found in."""

    texts: Sequence[Ints]
    found: Sequence[Ints]
    recovered: Ints

    def metrics(self, words: Words, digits: bool) -> dict[str, float]:
        """By name; those of digits only if they are asked for and the texts have some. Entries of the vocabulary that
        are no words (padding, unknown words) are neither looked for nor found."""
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
    """Their harmonic mean; 0 of two zeros."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def paired(
    texts: Sequence[Ints], found: Sequence[Ints], labels: NDArray[np.int64], guessed: NDArray[np.int64] | None
) -> Pairing:
    """Greedily, by the shares of either's words that the other has; only texts of the same label if labels are
    ``guessed``. The earlier of equals first."""
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
