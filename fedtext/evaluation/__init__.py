"""Accuracy of a model on a client's texts, and what the area under the ROC curve is made of.

Legend: N texts, B batch, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.methods.base import Inference, Method, Model
from fedtext.training.batches import Assembler, Texts

EVALUATION_BATCH = 256


@dataclass(frozen=True, eq=False)
class Scored:
    """Of two classes: how much each text looks like class 1, and whether it is."""

    scores_N: NDArray[np.float32]
    labels_N: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Reading:
    """One client's evaluation: its figures by name, and by the name of the area they belong to the scores that the
    server pools over clients."""

    figures: dict[str, float]
    scored: dict[str, Scored] = field(default_factory=dict)


@torch.no_grad()
def read(
    method: Method, model: Model, texts: Texts, assembler: Assembler, inference: Inference, scored: bool = False
) -> tuple[float, Scored | None]:
    """Share of texts whose most probable class is theirs (KTEPS paper, equation 14); with ``scored`` also each text's
    score, of two classes: log p_1 - log p_0, which tells texts apart where p_1 has long come to be 1."""
    model.network.eval()
    right, scores_N = 0, np.zeros(len(texts) if scored else 0, np.float32)
    for chosen in texts.by_length(EVALUATION_BATCH):
        batch, _ = assembler.single(texts, chosen)
        probabilities_BC = method.probabilities(model, batch, inference)
        right += int((probabilities_BC.argmax(1) == batch.labels_B).sum())
        if scored:
            log_BC = probabilities_BC.log()
            scores_N[chosen] = (log_BC[:, 1] - log_BC[:, 0]).cpu().numpy()
    return right / len(texts), Scored(scores_N, texts.labels_N == 1) if scored else None


def area(parts: Sequence[Scored]) -> float | None:
    """The area under the ROC curve over all texts of ``parts``: how often a text of class 1 scores higher than one of
    class 0, ties counting half (Mann-Whitney). Counted in whole numbers, so that the parts' order is of no importance.
    None if a class has no text, or a score is no number."""
    scores_N = np.concatenate([part.scores_N for part in parts])
    labels_N = np.concatenate([part.labels_N for part in parts])
    if labels_N.all() or not labels_N.any() or np.isnan(scores_N).any():
        return None
    values, place_N = np.unique(scores_N, return_inverse=True)
    ones = np.bincount(place_N[labels_N], minlength=len(values))
    zeros = np.bincount(place_N[~labels_N], minlength=len(values))
    halves = int((ones * (2 * (np.cumsum(zeros) - zeros) + zeros)).sum())  # two for each pair in order, one for a tie
    return halves / (2 * int(ones.sum()) * int(zeros.sum()))


def areas(readings: Sequence[Reading]) -> dict[str, float]:
    """Every area that clients have scores for, pooled over them."""
    names = dict.fromkeys(name for reading in readings for name in reading.scored)
    found = {name: area([reading.scored[name] for reading in readings if name in reading.scored]) for name in names}
    return {name: value for name, value in found.items() if value is not None}
