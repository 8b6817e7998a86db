"""The one local-training loop."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedtext.methods.base import Batch, Method, Model
from fedtext.training.optimizer import LocalOptimizer


@dataclass
class Outcome:
    """Mean of every loss term over the samples seen, and the number of samples and steps."""

    samples: int = 0
    steps: int = 0
    terms: dict[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        return sum(self.terms.values())


@dataclass(frozen=True)
class Problem:
    """What one client optimises: the method's loss of ``network``; ``received`` is what the server sent."""

    method: Method
    network: nn.Module
    received: Mapping[str, Tensor]


def train(problem: Problem, batches: Iterable[Batch], optimizer: LocalOptimizer) -> Outcome:
    """One step after the other over ``batches``; the parameters that ``optimizer`` holds are changed in place."""
    outcome = Outcome()
    sums: dict[str, Tensor | float] = {}
    problem.network.train()
    for batch in batches:
        parameters, batch = optimizer.begin(batch)
        terms = problem.method.loss(Model(problem.network, parameters), problem.received, batch)
        torch.stack(list(terms.values())).sum().backward()
        optimizer.step()
        size = len(batch.labels_B)
        for name, term in terms.items():
            sums[name] = sums.get(name, 0.0) + term.detach() * size
        outcome.samples += size
        outcome.steps += 1
    optimizer.finish()
    outcome.terms = {name: float(total) / outcome.samples for name, total in sums.items()}
    return outcome
