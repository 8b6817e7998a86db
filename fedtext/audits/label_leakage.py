"""The classes of a client's texts, inferred from the update of its output layer's bias (iDLG: Zhao et al. 2020).

Legend: N texts of the client, C classes, R random texts.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.audits.base import Audit, LocalUpdate, Observation
from fedtext.audits.gradients import count_behind, mean_gradient, rescaled, texts_behind
from fedtext.audits.known import State, Words
from fedtext.methods.base import Model
from fedtext.models.batch import Batch
from fedtext.seeding import generator

_TEXTS, _LONGEST = 64, 32


class LabelLeakage(Audit):
    """Label leakage: the classes of a client's texts, by the gradient of the output layer's bias.

    The gradient of cross-entropy with respect to the bias of class c is the mean over texts of p_c - 1[c is the label].
    For a single text it is negative only at the label. For several texts the share of class c is the mean of p_c minus
    the gradient. The mean of p_c is unknown to the attacker, who takes the received model's probabilities on texts of
    random words. The texts are those that the update was trained on. The length of a clipped update's gradient is
    unknown: it does not matter for a single text, and is estimated for several (``stretch``).

    ``label_top`` is 1 if the class with the largest inferred share is (one of) the most frequent, else 0; for a single
    text it tells whether the label is found. ``label_l1`` is sum_c |inferred share - share|, from 0 to 2.
    ``label_l1_uniform`` is the same sum for equal shares of all classes, as a baseline.
    """

    name: Literal["label_leakage"] = "label_leakage"
    metrics = ("label_top", "label_l1", "label_l1_uniform")

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        labels_N = local.data.train.labels_N[texts_behind(local)]
        shares_C = np.bincount(labels_N, minlength=local.known.classes) / len(labels_N)
        return Labels(inferred_shares(local), shares_C)


@dataclass(frozen=True)
class Labels(Observation):
    """The inferred and the true shares of classes of a client."""

    inferred_C: NDArray[np.float64]
    shares_C: NDArray[np.float64]

    def metrics(self, shared: State) -> dict[str, float]:
        top = self.shares_C[self.inferred_C.argmax()] == self.shares_C.max()
        found, uniform = (float(np.abs(c - self.shares_C).sum()) for c in (self.inferred_C, 1 / len(self.shares_C)))
        return {"label_top": float(top), "label_l1": found, "label_l1_uniform": uniform}

    def report(self, shared: State, words: Words) -> dict[str, str]:
        return {}


def inferred_shares(local: LocalUpdate) -> NDArray[np.float64]:
    """Infer the share of each class among the texts behind the received update.

    Returns:
        Shares of shape (C,), not negative, with sum 1. For a single text the inferred label has share 1.
    """
    gradient_C = mean_gradient(local)[_output_bias(local)].astype(np.float64)
    if len(gradient_C) == 1:  # one sigmoid unit, whose logits are 0 and its own
        gradient_C = np.array([-gradient_C[0], gradient_C[0]])
    count = count_behind(local.known.experiment, local.update.samples)
    if count == 1:
        return np.eye(len(gradient_C))[gradient_C.argmin()]
    expected_C = _expected(local)
    if rescaled(local):
        gradient_C *= stretch(gradient_C, expected_C, count)
    shares_C = np.clip(expected_C - gradient_C, 0, None)
    return shares_C / shares_C.sum() if shares_C.sum() else np.full(len(shares_C), 1 / len(shares_C))


def stretch(gradient_C: NDArray[np.float64], expected_C: NDArray[np.float64], count: int) -> float:
    """Estimate the factor, at least 1, by which clipping has shortened a gradient of the output layer's bias.

    The direction of p - share is received, its length is not. N labels drawn from p give a mean squared length of
    (1 - sum_c p_c^2) / N; the factor is the one that gives this length, or the largest that leaves no share negative.

    Args:
        gradient_C: the received gradient.
        expected_C: p, the mean probability of each class.
        count: N, the number of texts.
    """
    length, up_C = np.linalg.norm(gradient_C), gradient_C > 0
    if not length:
        return 1.0
    wanted = np.sqrt((1 - np.square(expected_C).sum()) / count) / length
    return float(max(1.0, min(wanted, np.min(expected_C[up_C] / gradient_C[up_C], initial=np.inf))))


def _output_bias(local: LocalUpdate) -> str:
    """Return the name of the last bias of the shared head; in logistic regression that of the sum."""
    biases = [name for name in local.received if name.startswith("head") and name.endswith("bias")]
    return max(biases, key=lambda name: int(name.split(".")[1])) if biases else "encoder.bias"


def _expected(local: LocalUpdate) -> NDArray[np.float64]:
    """Return the mean probability of each class by the received model, on texts of random words."""
    known, words = local.known, len(local.known.table(local.received))
    rng = generator(known.experiment.seed, "audits/label_leakage", local.round, local.data.id)
    length = min(known.experiment.corpus.max_length or _LONGEST, _LONGEST, words)
    # distinct, for models that take a text for a set
    tokens_RT = np.stack([np.sort(rng.choice(words, length, replace=False)) for _ in range(_TEXTS)])
    rows_U, places = np.unique(tokens_RT, return_inverse=True)
    parameters = known.parameters(local.received, rows_U.astype(np.int32))
    lengths_R, labels_R = torch.full((_TEXTS,), length), torch.zeros(_TEXTS, dtype=torch.int64)
    batch = Batch(torch.from_numpy(places.reshape(tokens_RT.shape)), lengths_R, labels_R)
    with torch.no_grad():
        model = Model(known.network, parameters)
        return known.experiment.method.probabilities(model, batch, "shared").double().mean(0).numpy()
