"""The loop of local training, for one client or for a stack of clients side by side."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedtext.methods.base import Method, Model
from fedtext.methods.state import Local, State, Tensors
from fedtext.models.batch import Batch
from fedtext.models.fused import FusedLoss
from fedtext.models.packing import Ints
from fedtext.models.trainable import constant_buffers
from fedtext.training.batches import Assembler, Texts
from fedtext.training.examples import ExampleNoise
from fedtext.training.optimizer import LocalOptimizer


@dataclass
class Outcome:
    """The result of a client's training.

    Attributes:
        method: The method.
        samples: Number of samples over all steps.
        steps: Number of steps.
        terms: Mean of every loss term over the samples, without its weight.
    """

    method: Method
    samples: int = 0
    steps: int = 0
    terms: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Add to the sum of a term."""
        self.terms[name] = self.terms.get(name, 0.0) + value

    @property
    def loss(self) -> float:
        """The mean of the objective: the weighted sum of the terms."""
        weights = self.method.weights
        return sum(weights.get(name, 1.0) * value for name, value in self.terms.items())

    def problem(self, *parameters: Tensor) -> str:
        """Return what is wrong with a training with these final parameters; empty if nothing is."""
        if not math.isfinite(self.loss):
            return f"its training loss is {self.loss}; a lower training.optimizer.lr may help"
        if not all(math.isfinite(float(part.sum())) for part in parameters):
            return "its parameters are not finite; a lower training.optimizer.lr may help"
        return ""


_FUSED: WeakKeyDictionary[nn.Module, tuple[Method, FusedLoss | None]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Problem:
    """The optimization problem of each client.

    Attributes:
        method: The method.
        network: The network.
        received: The shared parameters that the server sent.
        local: The argument of the method's hooks, if they change the steps.
        examples: The clipping of each text's gradient, and the noise; None: there is neither.
        state: The client's state, if the loss reads it.
    """

    method: Method
    network: nn.Module
    received: Mapping[str, Tensor]
    local: Local | None = None
    examples: ExampleNoise | None = None
    state: State | None = None

    def correction(self, parameters: Mapping[str, Tensor]) -> Callable[[Tensors], Tensors] | None:
        """Return the method's change of the gradient at these parameters; None if it does not change it."""
        if self.local is None or not self.method.changes_gradients():
            return None
        now = replace(self.local, parameters=Tensors({name: p.detach() for name, p in parameters.items()}))
        return lambda gradients: self.method.gradient(gradients, now)

    def fused(self) -> FusedLoss | None:
        """Return the terms and the objective's gradients as one function; None: autograd computes them."""
        if self.local is not None and self.method.changes_gradients():
            return None
        method, found = _FUSED.get(self.network, (None, None))
        if method is not self.method:
            found = self.method.fused(self.network) if self.method.fuses() else None
            _FUSED[self.network] = self.method, found
        return found

    def terms(self, parameters: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Compute the loss terms of one client's batch, without their weights."""
        return self.method.loss(Model(self.network, parameters, self.state), self.received, batch)

    def stacked_terms(self, parameters: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Compute the terms of several clients, from tensors with a leading axis of clients."""
        assert batch.words is not None

        def one(parameters: dict, tokens_BT: Tensor, lengths_B: Tensor, labels_B: Tensor, word_S: Tensor) -> dict:
            assert batch.words is not None
            words = replace(batch.words, word_S=word_S)
            return self.terms(parameters, Batch(tokens_BT, lengths_B, labels_B, words, native=batch.native))

        each = torch.vmap(one, randomness="different")
        return each(dict(parameters), batch.tokens_BT, batch.lengths_B, batch.labels_B, batch.words.word_S)


@dataclass(frozen=True)
class Work:
    """The training data of a client: its texts, and the indices of those in each batch."""

    texts: Texts
    batches: Sequence[Ints]


def train(problem: Problem, assembler: Assembler, optimizer: LocalOptimizer, work: Sequence[Work]) -> list[Outcome]:
    """Train clients. The parameters of the optimizer are changed in place.

    Clients make their steps together as long as their batches have the same size. The last batch of an epoch is often
    smaller: a client makes this step alone.

    Args:
        problem: The optimization problem.
        assembler: Makes batches.
        optimizer: The optimizer, with the parameters of the clients.
        work: The batches of each client, in the order of the optimizer's stack.

    Raises:
        NetworkError: The network changes a buffer.
    """
    with constant_buffers(problem.network):
        return _trained(problem, assembler, optimizer, work)


def _trained(problem: Problem, assembler: Assembler, optimizer: LocalOptimizer, work: Sequence[Work]) -> list[Outcome]:
    """Train clients. The arguments are those of ``train``."""
    # `train()` sets an attribute of every module, which takes as long as a step of a small network.
    if not all(module.training for module in problem.network.modules()):
        problem.network.train()
    outcomes, fused = [Outcome(problem.method) for _ in work], problem.fused()
    seen: _Seen = {}  # added up at the end, so that no step waits for the device
    if problem.examples:
        (alone,), (outcome,) = work, outcomes
        _by_text(problem, assembler, optimizer, alone, outcome, seen)
        work = []
    for clients, batch, words in _steps(assembler, work):
        parameters = optimizer.begin(clients, words, batch.task)
        size = batch.labels_B.shape[-1]
        if fused and fused.takes(batch) and (grads := optimizer.gradients(clients)):
            for client, own in zip(clients, fused(parameters, batch, grads), strict=True):
                for name, value in own.items():
                    outcomes[client].add(name, size * value)
            optimizer.apply(clients)
        else:
            terms = (problem.terms if len(clients) == 1 else problem.stacked_terms)(parameters, batch)
            optimizer.step(clients, problem.method.objective(terms), problem.correction(parameters))
            for name, term in terms.items():
                seen.setdefault(name, []).append((clients, size, term.detach().reshape(-1)))
        for client in clients:
            outcomes[client].samples += size
            outcomes[client].steps += 1
    optimizer.finish()
    _add_up(outcomes, seen)
    return outcomes


_Seen = dict[str, list[tuple[range, int, Tensor]]]  # terms of steps: of which clients, and of how many texts


def _by_text(
    problem: Problem, assembler: Assembler, optimizer: LocalOptimizer, work: Work, outcome: Outcome, seen: _Seen
) -> None:
    """Train a client along noised sums of the clipped gradients of its texts (training/examples.py).

    Args:
        problem: The optimization problem, with ``examples``.
        assembler: Makes batches.
        optimizer: The optimizer, with the parameters of this client alone.
        work: Its batches.
        outcome: Counts its texts and steps.
        seen: Receives the terms of each text.
    """
    assert problem.examples is not None
    alone = range(1)
    for chosen in work.batches:
        total, correction = None, None
        for place in range(len(chosen)):
            batch, words = assembler.single(work.texts, chosen[place : place + 1])
            parameters = optimizer.begin(alone, words, batch.task)
            terms = problem.terms(parameters, batch)
            total = problem.examples.add(total, optimizer.gradient(problem.method.objective(terms)))
            correction = problem.correction(parameters)
            for name, term in terms.items():
                seen.setdefault(name, []).append((alone, 1, term.detach().reshape(-1)))
        assert total is not None, "a batch has texts"
        optimizer.follow(alone, problem.examples.noised(total, len(chosen)), correction)
        outcome.samples += len(chosen)
        outcome.steps += 1


def _add_up(outcomes: Sequence[Outcome], seen: Mapping[str, Sequence[tuple[range, int, Tensor]]]) -> None:
    """Add terms that are tensors to the outcomes of their clients, and make means of all sums."""
    whose = {name: [(c, size) for clients, size, _ in parts for c in clients] for name, parts in seen.items()}
    values = torch.cat([term for parts in seen.values() for *_, term in parts]).cpu() if seen else torch.empty(0)
    for (name, steps), values_S in zip(whose.items(), values.split(list(map(len, whose.values()))), strict=True):
        for (client, size), value in zip(steps, values_S.tolist(), strict=True):
            outcomes[client].add(name, size * value)
    for outcome in outcomes:
        outcome.terms = {name: total / outcome.samples for name, total in outcome.terms.items()}


def _steps(assembler: Assembler, work: Sequence[Work]) -> Iterator[tuple[range, Batch, list[Ints]]]:
    """Yield the clients of a step, their batch, and the rows of its words in each client's table."""
    full = max((len(batch) for each in work for batch in each.batches), default=0)
    queues = [iter(each.batches) for each in work]
    while True:
        ready: dict[int, Ints] = {}
        for client, queue in enumerate(queues):
            for chosen in queue:
                if len(chosen) == full and len(work) > 1:
                    ready[client] = chosen
                    break
                yield range(client, client + 1), *assembler.single(work[client].texts, chosen)
        if not ready:
            return
        for clients in _neighbours(list(ready)):
            picks = [(work[client].texts, ready[client]) for client in clients]
            together = assembler.packed(picks) if len(clients) > 1 else assembler.single(*picks[0])
            yield clients, *together


def _neighbours(clients: list[int]) -> Iterator[range]:
    """Split ascending ids into ranges without gaps."""
    start = clients[0]
    for client, following in zip(clients, [*clients[1:], None], strict=True):
        if following != client + 1:
            yield range(start, client + 1)
            if following is not None:
                start = following
