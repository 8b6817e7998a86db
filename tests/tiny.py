"""Small corpora and experiments made in the test, for whatever needs no real text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.methods.base import Method
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from fedtext.testing.runs import Recording, federated
from fedtext.testing.tiny import (
    TRAINING,
    configured,
    corpus,
    experiment,
    language_corpus,
    language_model,
    model_and_batch,
    token_set,
)

__all__ = [
    "TRAINING",
    "TWO",
    "Finished",
    "Recording",
    "configured",
    "corpus",
    "experiment",
    "federation",
    "grads",
    "language_corpus",
    "language_model",
    "model_and_batch",
    "token_set",
]


def grads(method: Method, term: str, parameters: Sequence[str], **how: Any) -> list[Tensor | None]:
    """The gradient of one loss term at some parameters; None where it does not reach."""
    model, batch = model_and_batch(method, **how)
    leaves = [model.parameters[name] for name in parameters]
    return list(torch.autograd.grad(method.loss(model, {}, batch)[term], leaves, allow_unused=True))


TWO = corpus(clients=2)


def federation(
    experiment: Experiment, corpus: Corpus = TWO, fleet: Any = LocalFleet, folder: Path | None = None
) -> Any:
    """A federation in this process whose clients are a ``fleet``, continued if ``folder`` has rounds of it."""
    return federated(experiment, corpus, fleet, folder)


class Finished(Federation):
    """A federation after all rounds: where it began, its worker, and its rows."""

    def __init__(self, method: Any, corpus: Corpus = TWO, **changes: Any) -> None:
        made = experiment(method if isinstance(method, str | dict) else "fedavg", **changes)
        if isinstance(method, Method):
            made = made.model_copy(update={"method": method})
        shared, self.private = initial(made, corpus)
        fleet = LocalFleet(made, corpus, self.private)
        fixed = {name: tensor for name, tensor in self.private.items() if made.fixed(name)}
        super().__init__(made, shared, fleet, None, fixed=fixed)
        self.before, self.worker = self.flat.copy(), fleet.worker
        self.rows = list(self.run())
