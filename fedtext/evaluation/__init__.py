"""Evaluation of a model on a client's texts, and over all clients' texts together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedtext.errors import UserError
from fedtext.evaluation.classes import accuracy
from fedtext.evaluation.pooled import Pooled
from fedtext.evaluation.words import Predicted, added, named, predict
from fedtext.methods.base import Inference, Method, Model
from fedtext.metrics import reported
from fedtext.models.language import LanguageModel
from fedtext.training.batches import Assembler, Texts

SPLITS = ("test", "validation")  # of evaluations


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One client's evaluation.

    Attributes:
        metrics: Metrics by name.
        pooled: Its parts of metrics over all clients, by the name of the evaluation.
        curves: Values of accuracies while the model is fine-tuned, by name.
        problem: Why it failed; empty if it did not.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    pooled: dict[str, Pooled] = field(default_factory=dict)
    curves: dict[str, tuple[float, ...]] = field(default_factory=dict)
    problem: str = ""

    def add(self, other: "Evaluated") -> None:
        """Add an evaluation on another split, or of another model."""
        self.metrics.update(other.metrics)
        self.pooled.update(other.pooled)
        self.curves.update(other.curves)


def evaluate(
    method: Method,
    model: Model,
    texts: Texts,
    assembler: Assembler,
    inference: Inference,
    name: str,
    scored: bool,
) -> Evaluated:
    """Evaluate a model on texts that it has not been trained on.

    Args:
        method: The method whose model it is.
        model: The network with the parameters to evaluate.
        texts: The texts.
        assembler: Makes batches of them.
        inference: The branches that predict.
        name: Name of the accuracy: ``Ag``, ``Ag_val``, ``Ap``, ... Language models have other metrics instead.
        scored: Whether to return the texts' scores too, for the area under the ROC curve of two classes.
    """
    model.network.eval()
    if isinstance(model.network, LanguageModel):
        return _told({name: predict(model, texts, assembler)})
    share, scores = accuracy(method, model, texts, assembler, inference, scored)
    return Evaluated({name: share}, {} if scores is None else {name: scores})


def averaged(evaluations: Sequence[Evaluated]) -> Evaluated:
    """Average a client's evaluations while its model is fine-tuned.

    Accuracies are averaged; metrics of next words are computed over the tokens of all evaluations.
    """
    parts = [_predicted(evaluated) for evaluated in evaluations]
    told = _told({name: added([part[name] for part in parts]) for name in parts[0]})
    curves = {
        name: tuple(evaluated.metrics[name] for evaluated in evaluations)
        for name in evaluations[0].metrics
        if name not in told.metrics
    }
    shares = {name: sum(values) / len(values) for name, values in curves.items()}
    return Evaluated(shares | told.metrics, told.pooled, curves)


def unchanged(evaluated: Evaluated) -> Evaluated:
    """Return ``Ap`` of a model that is not fine-tuned, which is its ``Ag``."""
    shares = {"Ap" + name[2:]: value for name, value in evaluated.metrics.items() if name.startswith("Ag")}
    told = _told({"Ap" + name[2:]: part for name, part in _predicted(evaluated).items() if name.startswith("Ag")})
    return Evaluated(shares | told.metrics, told.pooled)


def pooled(evaluations: Sequence[Evaluated]) -> dict[str, float]:
    """Compute metrics over all clients' texts: areas under the ROC curve, perplexities, those of audits.

    Raises:
        UserError: Those of an audit are none, or would replace others.
    """
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for evaluated in evaluations for name in evaluated.pooled):
        parts = [evaluated.pooled[name] for evaluated in evaluations if name in evaluated.pooled]
        over = type(parts[0]).over_clients(parts, name)
        if not reported.is_taken(name):  # of an audit
            if problem := reported.problem_of(over):
                raise UserError(f"audits: {type(parts[0]).__name__}: over_clients returned {problem}")
            over = reported.as_floats(over)
        found |= over
    return found | _spread(evaluations)


def curves(evaluations: Sequence[Evaluated], every: int) -> dict[str, dict[int, float]]:
    """Compute means over clients while they are fine-tuned, by name and step.

    Args:
        evaluations: The clients' evaluations.
        every: Steps between two values of a curve.
    """
    found = {}
    for name in dict.fromkeys(name for evaluated in evaluations for name in evaluated.curves):
        steps = zip(*(evaluated.curves[name] for evaluated in evaluations if name in evaluated.curves), strict=True)
        found[name] = {every * number: sum(values) / len(values) for number, values in enumerate(steps, 1)}
    return found


def _spread(evaluations: Sequence[Evaluated]) -> dict[str, float]:
    """Compute metrics of the spread over clients (FedeVocab paper, section 4.3).

    ``Local_p10`` is the value that 90 % of the clients reach (the nearest rank), and ``Global_geometric`` the geometric
    mean, which is 0 if a client has 0. Both are NaN if the value of a client is.
    """
    local, everywhere = (
        np.array([evaluated.metrics[name] for evaluated in evaluations if name in evaluated.metrics])
        for name in ("Local", "Global")
    )
    found = {}
    if len(local):
        reached = float(np.sort(local)[len(local) + -9 * len(local) // 10])
        found["Local_p10"] = reached if np.isfinite(local).all() else math.nan
    if len(everywhere):
        found["Global_geometric"] = 0.0 if everywhere.min() == 0 else float(np.exp(np.log(everywhere).mean()))
    return found


def _told(predicted: Mapping[str, Predicted]) -> Evaluated:
    """Return the metrics of next words, by the name of the evaluation."""
    metrics: dict[str, float] = {}
    for name, part in predicted.items():
        metrics |= named(part.metrics(), name)
    return Evaluated(metrics, dict(predicted))


def _predicted(evaluated: Evaluated) -> dict[str, Predicted]:
    return {name: part for name, part in evaluated.pooled.items() if isinstance(part, Predicted)}
