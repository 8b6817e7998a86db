"""W3 and W5 of local_loop.py: recurrent language models, and plain torch loops.

W3: FedAtt's tied GRU of 300 units over 10,000 words; 20 sentences of 36 tokens (35 inputs and 35 targets). W5: the
StackOverflow task of Reddi et al. 2020: embedding 96, LSTM of 670 units, projection to 96, 10,000 words; 16 sentences
of 20 words and their end. SGD, W3 with momentum. The words are synthetic (Zipf's law), or those of WikiText-2 or Penn
Treebank (real.py). ``naive`` is a straightforward loop: torch's recurrent layer on the padded batch, a linear layer
that shares the embedding's weights, cross entropy of all logits, torch's optimizer with its defaults. ``ours`` is
fedtext's model and training.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from benchmarks import real
from fedtext.corpora.types import TokenSet
from fedtext.layout import Layout
from fedtext.models.language import RecurrentLanguageModel, RecurrentNetwork
from fedtext.runtime.compiled import compile_problem
from fedtext.training.batches import Assembler, Texts
from fedtext.training.config import SGD
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace

VOCABULARY = 10_000
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Task:
    """Settings in which W3 and W5 differ.

    Attributes:
        config: The model.
        batch: Sentences of a batch.
        tokens: Tokens of a sentence: the inputs, of which each but the first is a target, and the last target.
        optimizer: SGD.
    """

    config: RecurrentLanguageModel
    batch: int
    tokens: int
    optimizer: SGD

    @property
    def inputs(self) -> int:
        """Inputs of a batch, which are as many as its targets."""
        return self.batch * (self.tokens - 1)

    def corpus(self, data: Path | None, vocabulary: int = VOCABULARY) -> np.ndarray:
        """Return word ids, batches x B x T, synthetic or from a folder of corpora. Raises UserError if it has none."""
        if data:
            return real.lines(data, vocabulary, self.batch, self.tokens)
        share = np.cumsum(1 / np.arange(1, vocabulary + 1))
        return np.searchsorted(share, np.random.default_rng(0).random((50, self.batch, self.tokens)) * share[-1])

    def network(self, vocabulary: int = VOCABULARY) -> RecurrentNetwork:
        torch.manual_seed(0)
        made = RecurrentNetwork(self.config, vocabulary, nn.Embedding(vocabulary, self.config.embedding.dim))
        nn.init.normal_(made.embedding.weight, std=0.05)
        return made


W3 = Task(RecurrentLanguageModel(embedding={"dim": 300}), 20, 36, SGD(lr=0.01, momentum=0.5))  # FedAtt's
W5 = Task(
    RecurrentLanguageModel(name="lstm_lm", embedding={"dim": 96}, hidden=670, projection=True),
    16,
    21,
    SGD(lr=0.3, momentum=0.0),
)


@dataclass(frozen=True)
class Loop:
    """A loop that trains for a number of steps when it is called.

    Attributes:
        run: Trains.
        weights: Returns the weights by name.
    """

    run: Callable[[int], None]
    weights: Callable[[], Mapping[str, Tensor]]

    def __call__(self, steps: int) -> None:
        self.run(steps)


class Plain(nn.Module):
    def __init__(self, config: RecurrentLanguageModel, vocabulary: int) -> None:
        super().__init__()
        dim = config.embedding.dim
        self.embedding = nn.Embedding(vocabulary, dim)
        self.rnn = (nn.LSTM if config.name == "lstm_lm" else nn.GRU)(dim, config.hidden, batch_first=True)
        self.projection = nn.Linear(config.hidden, dim) if config.projection else nn.Identity()
        self.head = nn.Linear(dim, vocabulary)
        self.head.weight = self.embedding.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.head(self.projection(self.rnn(self.embedding(tokens_BT))[0]))


def naive(made: np.ndarray, vocabulary: int = VOCABULARY, task: Task = W3, device: torch.device = CPU) -> Loop:
    network, data, at = Plain(task.config, vocabulary), torch.from_numpy(made), 0
    network.load_state_dict(task.network(vocabulary).state_dict(), strict=False)
    network.to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=task.optimizer.lr, momentum=task.optimizer.momentum)

    def run(steps: int) -> None:
        nonlocal at
        for _ in range(steps):
            at += 1
            tokens_BT = data[at % len(data)].to(device)
            optimizer.zero_grad()
            logits = network(tokens_BT[:, :-1])
            functional.cross_entropy(logits.flatten(0, 1), tokens_BT[:, 1:].flatten()).backward()
            optimizer.step()

    return Loop(run, lambda: dict(network.named_parameters()))


def ours(
    data: np.ndarray,
    vocabulary: int = VOCABULARY,
    device: torch.device = CPU,
    directions: int | None = 1,
    engine: str = "cells",
    task: Task = W3,
) -> Loop:
    """Return fedtext's loop. ``directions`` is None for the engine ``reference``."""
    network, at = task.network(vocabulary).to(device), 0
    drawn = {name: parameter.detach() for name, parameter in network.named_parameters()}
    layout = Layout({name: tuple(tensor.shape) for name, tensor in drawn.items()})
    stack = Stack(layout, [vocabulary], Workspace(device))
    for name, tensor in stack.tensors(0).items():
        tensor.copy_(drawn[name])
    optimizer = LocalOptimizer(task.optimizer, stack, task.optimizer.lr)
    tokens_NT, one = data.reshape(-1, task.tokens), range(1)
    offsets, labels_N = task.tokens * np.arange(len(tokens_NT) + 1), np.zeros(len(tokens_NT), np.int64)
    texts = Texts(TokenSet(tokens_NT.astype(np.int32).reshape(-1), offsets, labels_N), vocabulary)
    assembler = Assembler(directions, cut=False, device=device, engine=engine, ahead=True)

    def run(steps: int) -> None:
        nonlocal at
        for _ in range(steps):
            at += 1
            batch, _ = assembler.single(texts, task.batch * (at % len(data)) + np.arange(task.batch))
            parameters = optimizer.begin(one, [])
            optimizer.step(one, functional_call(network, parameters, (batch,)).loss)
        optimizer.finish()

    return Loop(run, lambda: stack.tensors(0))


def products(task: Task, vocabulary: int = VOCABULARY, steps: int = 1) -> Callable[[int], None]:
    """Return a loop of the products of a batch alone: forward, and backward to inputs and weights.

    Args:
        task: The settings.
        vocabulary: Number of words.
        steps: In how many products the recurrent one is computed: 1, or one for each place of a sentence, as the states
            need it.
    """
    config, rows = task.config, task.inputs
    dim, hidden, gates = config.embedding.dim, config.hidden, (4 if config.name == "lstm_lm" else 3) * config.hidden
    shapes = [(rows, dim, gates), *steps * [(rows // steps, hidden, gates)], (rows, dim, vocabulary)]
    shapes += [(rows, hidden, dim)] if config.projection else []
    factors = []
    for m, k, n in shapes:
        a, w, g = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
        for left, right in ((a, w), (g, w.T.contiguous()), (a.T.contiguous(), g)):
            factors.append((left, right, torch.empty(len(left), right.shape[1])))

    def run(count: int) -> None:
        for _ in range(count):
            for left, right, out in factors:
                torch.mm(left, right, out=out)

    return run


def variants(data: np.ndarray, vocabulary: int = VOCABULARY, task: Task = W3) -> dict[str, Callable[[int], None]]:
    """Return the loops; each trains for the given number of steps."""
    engine = "cells" if compile_problem() else "native"  # as training.engine: auto
    return {
        "naive": naive(data, vocabulary, task),
        "ours": ours(data, vocabulary, engine=engine, task=task),
        "floor": products(task, vocabulary),
        "floor, step by step": products(task, vocabulary, task.tokens - 1),
    }
