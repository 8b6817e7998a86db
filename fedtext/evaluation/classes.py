"""Of classes: the share of texts that are told right, and what the area under the ROC curve is made of.

Legend: N texts, B batch, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.methods.base import Inference, Method, Model
from fedtext.training.batches import Assembler, Texts

BATCH = 256


@dataclass(frozen=True, eq=False)
class Scored:
    """Of two classes: how much each text looks like class 1, and whether it is."""

    scores_N: NDArray[np.float32]
    labels_N: NDArray[np.bool_]


@torch.no_grad()
def accuracy(
    method: Method, model: Model, texts: Texts, assembler: Assembler, inference: Inference, scored: bool
) -> tuple[float, Scored | None]:
    """Share of texts whose most probable class is theirs (KTEPS paper, equation 14); and if they are to be ``scored``,
    of two classes each text's score: log p_1 - log p_0, which tells texts apart where p_1 has long come to be 1."""
    right, scores = [], []
    for chosen in texts.by_length(BATCH):
        batch, _ = assembler.single(texts, chosen)
        probabilities_BC = method.probabilities(model, batch, inference)
        right.append((probabilities_BC.argmax(1) == batch.labels_B).sum())
        if scored and probabilities_BC.shape[1] == 2:
            log_BC = probabilities_BC.log()
            scores.append((chosen, log_BC[:, 1] - log_BC[:, 0]))
    share = int(torch.stack(right).sum()) / len(texts)
    if not scores:
        return share, None
    scores_N = np.zeros(len(texts), np.float32)
    scores_N[np.concatenate([chosen for chosen, _ in scores])] = torch.cat([each for _, each in scores]).cpu().numpy()
    return share, Scored(scores_N, texts.labels_N == 1)


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
