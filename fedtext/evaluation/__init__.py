"""What is read of a model on a client's texts, and what of all clients' together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedtext.evaluation.classes import Scored, accuracy, area
from fedtext.evaluation.words import Predicted, added, predict, together
from fedtext.methods.base import Inference, Method, Model
from fedtext.models.language import LanguageModel
from fedtext.training.batches import Assembler, Texts

SPLITS = ("test", "validation")  # that are read


@dataclass(frozen=True, eq=False)
class Reading:
    """One client's evaluation: its figures by name, and by the name of the reading what the server pools over
    clients."""

    figures: dict[str, float] = field(default_factory=dict)
    pooled: dict[str, Scored | Predicted] = field(default_factory=dict)

    def add(self, other: "Reading") -> None:
        """What was read of another split, or of another model."""
        self.figures.update(other.figures)
        self.pooled.update(other.pooled)


def read(
    method: Method,
    model: Model,
    texts: Texts,
    assembler: Assembler,
    inference: Inference,
    name: str,
    scored: bool,
) -> Reading:
    """What a model makes of texts it has not been trained on. ``name`` says which model is read, and of which split:
    ``Ag``, ``Ag_val``, ``Ap``, ... It is that of the accuracy; language models have figures of their own in its
    place. ``scored``: of two classes the texts' scores are wanted too, for the area under the ROC curve."""
    model.network.eval()
    if isinstance(model.network, LanguageModel):
        return _told({name: predict(model, texts, assembler)})
    share, scores = accuracy(method, model, texts, assembler, inference, scored)
    return Reading({name: share}, {} if scores is None else {name: scores})


def averaged(readings: Sequence[Reading]) -> Reading:
    """A client's readings while its model moves, as one: the mean of accuracies; of next words the figures of all
    readings' tokens together, as a single reading's are of all clients', so that both can be compared."""
    parts = [_predicted(reading) for reading in readings]
    told = _told({name: added([part[name] for part in parts]) for name in parts[0]})
    shares = {
        name: sum(reading.figures[name] for reading in readings) / len(readings)
        for name in readings[0].figures
        if name not in told.figures
    }
    return Reading(shares | told.figures, told.pooled)


def unchanged(reading: Reading) -> Reading:
    """``Ap`` of a model that is not fine-tuned: its ``Ag``."""
    shares = {"Ap" + name[2:]: value for name, value in reading.figures.items() if name.startswith("Ag")}
    told = _told({"Ap" + name[2:]: part for name, part in _predicted(reading).items() if name.startswith("Ag")})
    return Reading(shares | told.figures, told.pooled)


def pooled(readings: Sequence[Reading]) -> dict[str, float]:
    """The figures of all clients' texts together: areas under the ROC curve (``AUC`` for ``Ag``), perplexities."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for reading in readings for name in reading.pooled):
        parts = [reading.pooled[name] for reading in readings if name in reading.pooled]
        scored = [part for part in parts if isinstance(part, Scored)]
        if not scored:
            found |= _named(together([part for part in parts if isinstance(part, Predicted)]), name)
        elif (value := area(scored)) is not None:
            found["AUC" + name[2:]] = value
    return found | _spread(readings)


def _spread(readings: Sequence[Reading]) -> dict[str, float]:
    """How unequal clients are: ``Local_p10``, which nine in ten reach at least (the nearest rank), and
    ``Global_geometric``, the geometric mean (FedeVocab paper, section 4.3), zero if anybody has zero."""
    found = {}
    if local := sorted(reading.figures["Local"] for reading in readings if "Local" in reading.figures):
        found["Local_p10"] = local[len(local) + -9 * len(local) // 10]
    if shares := [reading.figures["Global"] for reading in readings if "Global" in reading.figures]:
        found["Global_geometric"] = float(np.exp(np.log(shares).mean())) if min(shares) > 0 else 0.0
    return found


def _told(predicted: Mapping[str, Predicted]) -> Reading:
    """Of next words, by the name of the reading."""
    figures: dict[str, float] = {}
    for name, part in predicted.items():
        figures |= _named(part.figures(), name)
    return Reading(figures, dict(predicted))


def _predicted(reading: Reading) -> dict[str, Predicted]:
    return {name: part for name, part in reading.pooled.items() if isinstance(part, Predicted)}


def _named(figures: dict[str, float], name: str) -> dict[str, float]:
    """``Ag``: perplexity; ``Ag_val``: perplexity_val; ``Ap``: perplexity_Ap."""
    suffix = name[2:] if name.startswith("Ag") else f"_{name}"
    return {figure + suffix: value for figure, value in figures.items()}
