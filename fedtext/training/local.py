"""The one local-training loop."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedtext.experiment import SGD, Adam
from fedtext.methods.base import Batch, Method, Model
from fedtext.models.recurrent import TABLE


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
    """What one client optimises: the method's loss of ``network`` at ``parameters``, which are changed in place."""

    method: Method
    network: nn.Module
    parameters: Mapping[str, Tensor]
    received: Mapping[str, Tensor]  # shared parameters as the server sent them


def build_optimizer(config: SGD | Adam, parameters: Mapping[str, Tensor], lr: float) -> torch.optim.Optimizer:
    """A fresh optimizer over ``parameters``. ``lr`` stands in for the configured one (personalisation scales it, the
    embedding's own rate with it)."""
    embedding_lr = lr if config.embedding_lr is None else config.embedding_lr * lr / config.lr
    groups: list[dict[str, Any]] = [
        {"params": [tensor for name, tensor in parameters.items() if name != TABLE], "lr": lr},
        {"params": [tensor for name, tensor in parameters.items() if name == TABLE], "lr": embedding_lr},
    ]
    if isinstance(config, Adam):
        return torch.optim.Adam(groups, lr=lr, fused=True)
    return torch.optim.SGD(groups, lr=lr, momentum=config.momentum, fused=True)


def train(problem: Problem, batches: Iterable[Batch], optimizer: torch.optim.Optimizer) -> Outcome:
    """One step after the other over ``batches``, with whatever engine the network's layers were told to use."""
    outcome = Outcome()
    sums: dict[str, Tensor | float] = {}
    problem.network.train()
    model = Model(problem.network, problem.parameters)
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        terms = problem.method.loss(model, problem.received, batch)
        torch.stack(list(terms.values())).sum().backward()
        optimizer.step()
        size = len(batch.labels_B)
        for name, term in terms.items():
            sums[name] = sums.get(name, 0.0) + term.detach() * size
        outcome.samples += size
        outcome.steps += 1
    outcome.terms = {name: float(total) / outcome.samples for name, total in sums.items()}
    return outcome
