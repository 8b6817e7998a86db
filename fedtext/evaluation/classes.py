"""Metrics of classification: accuracy, and the area under the ROC curve.

Legend: N texts, B batch, C classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.evaluation.pooled import Pooled
from fedtext.methods.base import Inference, Method, Model
from fedtext.training.batches import Assembler, Texts

BATCH = 256


@dataclass(frozen=True, eq=False)
class Scored(Pooled):
    """Scores of texts for class 1 of two, and whether it is their class."""

    scores_N: NDArray[np.float32]
    labels_N: NDArray[np.bool_]

    @classmethod
    def over_clients(cls, parts: "Sequence[Scored]", name: str) -> dict[str, float]:
        value = area(parts)
        return {} if value is None else {"AUC" + name[2:]: value}


@torch.no_grad()
def accuracy(
    method: Method, model: Model, texts: Texts, assembler: Assembler, inference: Inference, scored: bool
) -> tuple[float, Scored | None]:
    """Compute the accuracy (KTEPS paper, equation 14), and the scores of texts.

    Args:
        method: The method.
        model: The network with the parameters to evaluate.
        texts: The texts.
        assembler: Makes batches of them.
        inference: The branches that predict.
        scored: Whether to return scores.

    Returns:
        The share of texts whose most probable class is theirs, NaN if a probability is not finite; and with two
        classes the score log p_1 - log p_0 of each text, which distinguishes texts even if p_1 is rounded to 1. None
        with other numbers of classes, or if not ``scored``.

    Raises:
        ValueError: The method returned no probabilities of each text.
    """
    right, finite, scores = [], [], []
    for chosen in texts.by_length(BATCH):
        batch, _ = assembler.single(texts, chosen)
        probabilities_BC = method.probabilities(model, batch, inference)
        if probabilities_BC.dim() != 2 or len(probabilities_BC) != len(batch.labels_B) or probabilities_BC.shape[1] < 2:
            raise ValueError(
                f"method {method.name}: probabilities has shape {tuple(probabilities_BC.shape)} for "
                f"{len(batch.labels_B)} texts, and not (texts, classes)"
            )
        right.append((probabilities_BC.argmax(1) == batch.labels_B).sum())
        finite.append(probabilities_BC.isfinite().all())
        if scored and probabilities_BC.shape[1] == 2:
            log_BC = probabilities_BC.log()
            scores.append((chosen, log_BC[:, 1] - log_BC[:, 0]))
    found = int(torch.where(torch.stack(finite).all(), torch.stack(right).sum(), -1))  # one wait for the device
    share = found / len(texts) if found >= 0 else math.nan
    if not scores:
        return share, None
    scores_N = np.zeros(len(texts), np.float32)
    scores_N[np.concatenate([chosen for chosen, _ in scores])] = torch.cat([each for _, each in scores]).cpu().numpy()
    return share, Scored(scores_N, texts.labels_N == 1)


def area(parts: Sequence[Scored]) -> float | None:
    """Compute the area under the ROC curve over all texts of ``parts``.

    It is the probability that a text of class 1 has a higher score than one of class 0, ties counting half
    (Mann-Whitney). Counts are integers, so the order of the parts does not matter.

    Returns:
        The area; None if a class has no text, or a score is NaN.
    """
    scores_N = np.concatenate([part.scores_N for part in parts])
    labels_N = np.concatenate([part.labels_N for part in parts])
    if labels_N.all() or not labels_N.any() or np.isnan(scores_N).any():
        return None
    values, place_N = np.unique(scores_N, return_inverse=True)
    ones = np.bincount(place_N[labels_N], minlength=len(values))
    zeros = np.bincount(place_N[~labels_N], minlength=len(values))
    halves = int((ones * (2 * (np.cumsum(zeros) - zeros) + zeros)).sum())  # two for each pair in order, one for a tie
    return halves / (2 * int(ones.sum()) * int(zeros.sum()))
