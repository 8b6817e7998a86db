"""Which classes a client's texts have, read from what its output layer's bias did (iDLG: Zhao et al. 2020).

Legend: N texts of the client, C classes, R random texts.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.audits.base import Audit, LocalUpdate, Observation, State, Words
from fedtext.audits.gradients import count_behind, mean_gradient, rescaled, texts_behind
from fedtext.methods.base import Model
from fedtext.models.batch import Batch
from fedtext.seeding import generator

if TYPE_CHECKING:
    pass

_TEXTS, _LONGEST = 64, 32


class LabelLeakage(Audit):
    """Label leakage: the classes of a client's texts, by the gradient of the output layer's bias.

    Of cross-entropy the gradient at the output layer's bias is, class by class, the mean of p_c - 1[c is the label]:
    of one text it is negative at its label alone, and of several their share of class c is the mean p_c less the
    gradient. The p_c of texts that no one has seen are taken to be what the received model says of random words. A
    client's texts are those that its update was trained on. Of a clipped update the gradient's length is not known: it
    does not matter for one text, and of several it is estimated (``stretch``).

    ``label_top``: whether the class that looks most frequent is (one of) the most frequent: of one text, whether its
    label is found. ``label_l1``: sum_c |inferred share - share|, from 0 to 2; ``label_l1_uniform``: what it is for
    whoever guesses that all classes are equally frequent.
    """

    name: Literal["label_leakage"] = "label_leakage"
    metrics = ("label_top", "label_l1", "label_l1_uniform")

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        labels_N = local.data.train.labels_N[texts_behind(local)]
        shares_C = np.bincount(labels_N, minlength=local.known.classes) / len(labels_N)
        return Labels(inferred_shares(local), shares_C)


@dataclass(frozen=True)
class Labels(Observation):
    """A client's classes."""

    inferred_C: NDArray[np.float64]
    shares_C: NDArray[np.float64]

    def metrics(self, shared: State) -> dict[str, float]:
        top = self.shares_C[self.inferred_C.argmax()] == self.shares_C.max()
        found, uniform = (float(np.abs(c - self.shares_C).sum()) for c in (self.inferred_C, 1 / len(self.shares_C)))
        return {"label_top": float(top), "label_l1": found, "label_l1_uniform": uniform}

    def report(self, shared: State, words: Words) -> dict[str, str]:
        return {}


def inferred_shares(local: LocalUpdate) -> NDArray[np.float64]:
    """The share of each class among the texts behind the received update, as it has it: not negative, summing to 1."""
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
    """The last bias of the (shared) head, of logistic regression that of the sum."""
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
