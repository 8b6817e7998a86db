"""Attribute inference: a property of a client's texts that is not the task, from its update (Melis et al. 2019).

Legend: S shadow updates, F features, N texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.audits.base import Audit, LocalUpdate, Observation
from fedtext.audits.gradients import texts_behind
from fedtext.audits.known import State, Words
from fedtext.audits.shadows import LocalSimulation, Sketch
from fedtext.corpora.types import ClientData
from fedtext.evaluation import Evaluated
from fedtext.evaluation.classes import Scored, area
from fedtext.evaluation.pooled import Pooled
from fedtext.models.packing import Ints
from fedtext.runtime.markdown import plain
from fedtext.runtime.threads import one_blas_thread
from fedtext.seeding import generator

FILE = "attribute_inference.md"
_CONSTANT = 1e-6  # deviation of a feature, in units of the largest one, that is rounding


class AttributeInference(Audit):
    """Attribute inference (Melis et al. 2019): whether a client's texts have some words, from its update.

    The attribute need not have to do with the task: words of an illness in reviews of films. The attacker knows the
    model, the method, the optimizer, the mechanisms, and what was sent to the client. It has texts of the client's kind
    that no update was trained on, the client's test texts but for those that are also in a client's train split. From
    these it draws ``shadows`` clients with as many texts as the client has, one half of them with ``words`` and one
    half without, simulates their updates, and learns a linear classifier of updates (ridge regression on random
    projections; shadows.py), which it applies to the client's.

    - ``attribute_auc``: over the clients of a round, the probability that the score of a client with the attribute is
      larger than that of one without it; 0.5 is chance. It is left out if all clients are alike.
    - ``attribute_accuracy``: share of the clients for which the sign of the score is right; beside it
      ``attribute_majority``, that of the better guess of one answer for all.
    - ``attribute_shadow_auc``: mean over clients of the same area over the shadow updates, each scored by a classifier
      that was learned without it. Shadow clients share texts, so that it is more than what can be learned of others.
    - ``attribute_shadows``: number of shadow updates; 0 if all test texts of a client have the words, or none.

    The update of more than ``steps`` local steps is compared with that of the first ones.
    """

    name: Literal["attribute_inference"] = "attribute_inference"
    words: tuple[str, ...] = Field(min_length=1, description="the attribute: texts with any of these words have it")
    shadows: int = Field(
        64, ge=8, multiple_of=2, description="number of updates that are simulated for each client, an even one"
    )
    texts: int = Field(64, ge=1, description="largest number of texts behind a simulated update")
    steps: int = Field(4, ge=1, description="largest number of local steps that are simulated")
    needs_unseen = True
    metrics = (
        "attribute_score",
        "attribute_present",
        "attribute_accuracy",
        "attribute_shadow_auc",
        "attribute_shadows",
        "attribute_auc",
        "attribute_majority",
    )
    sizes = ("attribute_shadows",)

    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        if local.round != local.known.experiment.training.rounds:
            return None
        rows = np.array([words.rows[word] for word in dict.fromkeys(self.words) if word in words.rows], np.int64)
        return Attribute(self, replace(local, trained={}), rows, words.digits)

    def blind(self, vocabulary: list[str]) -> str:
        if set(self.words) & set(vocabulary):
            return ""
        named = ", ".join(self.words)
        return f"attribute_inference.words: none of {named} is in the corpus's vocabulary: name other words"


@dataclass(frozen=True)
class Inferred(Pooled):
    """The inference about one client.

    Attributes:
        score: The score of its update.
        present: Whether it has the attribute.
    """

    score: float
    present: bool

    @classmethod
    def over_clients(cls, parts: "Sequence[Inferred]", name: str) -> dict[str, float]:
        present_C = np.array([part.present for part in parts])
        found = {"attribute_majority": float(max(present_C.mean(), 1 - present_C.mean()))}
        value = area([Scored(np.array([part.score for part in parts], np.float32), present_C)])
        return found if value is None else found | {"attribute_auc": value}


@dataclass
class Attribute(Observation):
    """A local update to attack, and after ``metrics`` the result.

    Attributes:
        audit: The audit.
        local: The local update; None after the attack.
        rows: Rows of the attribute's words.
        digits_V: Which words have a digit in them.
        client: Name of the client.
        values: The metrics.
        why: Why nothing could be learned, as a sentence; empty if something could.
    """

    audit: AttributeInference
    local: LocalUpdate | None
    rows: Ints
    digits_V: NDArray[np.bool_]
    client: str = ""
    values: dict[str, float] = field(default_factory=dict)
    why: str = ""

    def metrics(self, shared: State) -> dict[str, float]:
        if (local := self.local) is None:
            return self.values
        self.local = None  # it holds what was sent to the client, which is large
        self.client, known = local.data.name, local.known
        data = known.tests(local.data.id) if known.tests else local.data
        data = replace(data, test=data.test.take(known.unseen(data)))
        with_N = containing(data, "test", self.rows)
        self.values = {"attribute_shadows": 0.0}
        if with_N.all() or not with_N.any():
            whose = "All" if with_N.any() else "None"
            self.why = (
                f"{whose} of its {len(with_N)} test texts have the words, so that there is nothing to learn the "
                "difference from."
            )
            return self.values
        own = local.data.train.take(texts_behind(local))
        rng = generator(known.experiment.seed, "audits/attribute_inference", local.round, local.data.id)
        simulation = LocalSimulation(
            known,
            local.received,
            data,
            known.read(data, "test"),
            frozenset(local.update.tensors),
            local.update.rows is not None,
            self.audit.steps,
            self.digits_V,
        )
        sketch = Sketch(known.experiment.seed, self.rows)
        count = min(len(own), self.audit.texts)
        labels_S = np.arange(self.audit.shadows) % 2 == 1
        # Those of a language model's texts are the lengths of prompts, and no classes.
        labels_N = np.zeros(len(with_N), np.int64) if known.experiment.model.language else data.test.labels_N
        shadows = (simulation.update(drawn(with_N, labels_N, bool(one), count, rng), rng) for one in labels_S)
        features_SF = np.stack([sketch.features(*shadow) for shadow in shadows])
        names = simulation.names & known.parameters(local.received, data.rows_R).keys()
        received = {name: tensor for name, tensor in local.update.tensors.items() if name in names}
        score = ridge(features_SF, labels_S, sketch.features(received, local.update.rows))
        present = bool(containing(replace(local.data, train=own), "train", self.rows).any())
        shadow_auc = area([Scored(cross_validated(features_SF, labels_S).astype(np.float32), labels_S)])
        self.values = {
            "attribute_shadows": float(len(labels_S)),
            "attribute_score": score,
            "attribute_present": float(present),
            "attribute_accuracy": float((score > 0) == present),
        } | ({} if shadow_auc is None else {"attribute_shadow_auc": shadow_auc})
        return self.values

    def evaluate(self, shared: State) -> Evaluated:
        values = self.metrics(shared)
        if "attribute_score" not in values:
            return Evaluated(values)
        guess = Inferred(values["attribute_score"], values["attribute_present"] > 0)
        return Evaluated(values, {self.audit.name: guess})

    def report(self, shared: State, words: Words) -> dict[str, str]:
        named = ", ".join(plain(word) for word in self.audit.words)
        lines = [f"# Whether texts of {plain(self.client)} have the words {named}, inferred from its update", ""]
        if self.why:
            lines.append(self.why)
        else:
            there = "there" if self.values["attribute_present"] else "not there"
            lines.append(
                f"Its score by {self.values['attribute_shadows']:.0f} shadow updates is "
                f"{self.values['attribute_score']:.3f}, positive where words are inferred, and they are {there}."
            )
        lines += ["", *(f"- {name}: {value:.3f}" for name, value in self.values.items())]
        return {FILE: "\n".join(lines) + "\n"}


def containing(data: ClientData, split: str, rows: Ints) -> NDArray[np.bool_]:
    """Return which texts of a client have any of some words.

    Args:
        data: The client.
        split: train or test.
        rows: Rows of the words in the vocabulary.
    """
    texts = data.train if split == "train" else data.test
    hit_T = np.isin(data.rows_R[texts.tokens_T], rows)
    return np.array([hit_T[start:stop].any() for start, stop in zip(texts.offsets, texts.offsets[1:], strict=False)])


def drawn(
    with_N: NDArray[np.bool_], labels_N: NDArray[np.int64], present: bool, count: int, rng: np.random.Generator
) -> Ints:
    """Draw the texts of a shadow client, with repetition.

    Labels are drawn as they are among all texts, whether the client has the attribute or not: updates would otherwise
    be told apart by their labels.

    Args:
        with_N: Which texts have the attribute.
        labels_N: Their labels.
        present: Whether the client has the attribute: one text at least has it, and others are drawn from all.
        count: Number of the client's texts.
        rng: Source of the draws.
    """
    chosen = rng.choice(len(with_N), count)
    for place, text in enumerate(chosen):
        wanted_N = np.ones_like(with_N) if present and place else with_N == present
        alike_N = wanted_N & (labels_N == labels_N[text])
        chosen[place] = rng.choice(np.flatnonzero(alike_N if alike_N.any() else wanted_N))
    return chosen


def cross_validated(features_SF: NDArray[np.float64], labels_S: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return scores of the shadow updates, two at a time by a classifier that was learned without them.

    Args:
        features_SF: Features of the updates, in turn without and with the attribute, so that the others are as many.
        labels_S: Which of these have the attribute.
    """
    alone_S = np.zeros(len(labels_S))
    for one in range(0, len(labels_S) - 1, 2):
        kept_S = np.arange(len(labels_S)) // 2 != one // 2
        for place in (one, one + 1):
            alone_S[place] = ridge(features_SF[kept_S], labels_S[kept_S], features_SF[place])
    return alone_S


def ridge(features_SF: NDArray[np.float64], labels_S: NDArray[np.bool_], client_F: NDArray[np.float64]) -> float:
    """Score an update by ridge regression on shadow updates.

    Features are centred, divided by their deviations, and multiplied by the distance of both classes' means in units of
    the deviation within a class, so that those in which classes differ count more. Labels are 1 and -1, and the penalty
    is the mean square length of the updates. A feature of the client beyond those of all shadow updates counts as the
    nearest of these.

    Args:
        features_SF: Features of the shadow updates.
        labels_S: Which of these have the attribute.
        client_F: Features of the update.
    """
    spread_F, mean_F = features_SF.std(0), features_SF.mean(0)
    kept_F = spread_F > _CONSTANT * spread_F.max()
    within_F = np.clip(client_F, features_SF.min(0), features_SF.max(0))
    scaled_SF = (features_SF - mean_F)[:, kept_F] / spread_F[kept_F]
    scaled_F = (within_F - mean_F)[kept_F] / spread_F[kept_F]
    apart_F = np.abs(scaled_SF[labels_S].mean(0) - scaled_SF[~labels_S].mean(0))
    apart_F /= np.sqrt(np.clip(1 - np.square(apart_F) / 4, _CONSTANT, None))
    scaled_SF, scaled_F = scaled_SF * apart_F, scaled_F * apart_F
    with one_blas_thread():
        kernel_SS = scaled_SF @ scaled_SF.T
        penalty = max(np.trace(kernel_SS) / len(labels_S), 1e-12)
        weights_S = np.linalg.solve(kernel_SS + penalty * np.eye(len(labels_S)), np.where(labels_S, 1.0, -1.0))
        return float(scaled_SF @ scaled_F @ weights_S)
