"""What is read of a model on a client's texts, and what of all clients' together."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedtext.evaluation.classes import Scored, accuracy, area
from fedtext.evaluation.words import Predicted, predict, together
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


def read(method: Method, model: Model, texts: Texts, assembler: Assembler, inference: Inference, name: str) -> Reading:
    """What a model makes of texts it has not been trained on. ``name`` says which model is read, and of which split:
    ``Ag``, ``Ag_val``, ``Ap``, ... It is that of the accuracy; language models have figures of their own in its
    place."""
    model.network.eval()
    if isinstance(model.network, LanguageModel):
        predicted = predict(model, texts, assembler)
        return Reading(_named(predicted.figures(), name), {name: predicted})
    share, scored = accuracy(method, model, texts, assembler, inference)
    return Reading({name: share}, {} if scored is None else {name: scored})


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
    return found


def _named(figures: dict[str, float], name: str) -> dict[str, float]:
    """``Ag``: perplexity; ``Ag_val``: perplexity_val; ``Ap``: perplexity_Ap."""
    suffix = name[2:] if name.startswith("Ag") else f"_{name}"
    return {figure + suffix: value for figure, value in figures.items()}
