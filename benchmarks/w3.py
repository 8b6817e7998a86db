"""W3 of local_loop.py: FedAtt's language model, and a plain torch loop.

Tied GRU of 300 units over 10,000 words; 20 sentences of 36 tokens (35 inputs and 35 targets); SGD with momentum. The
words are synthetic (Zipf's law), or those of WikiText-2 or Penn Treebank (real.py). ``naive`` is a straightforward
loop: nn.GRU on the padded batch, a linear layer that shares the embedding's weights, cross entropy of all logits,
torch's optimizer with its defaults. ``ours`` is fedtext's model and training.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
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

VOCABULARY, WIDTH, BATCH, TOKENS = 10_000, 300, 20, 36
LR, MOMENTUM = 0.01, 0.5  # FedAtt's
CPU = torch.device("cpu")


def corpus(data: Path | None, vocabulary: int = VOCABULARY) -> np.ndarray:
    """Return word ids, batches x B x T, synthetic or from a folder of corpora. Raises UserError if it has no text."""
    if data:
        return real.lines(data, vocabulary, BATCH, TOKENS)
    share = np.cumsum(1 / np.arange(1, vocabulary + 1))
    return np.searchsorted(share, np.random.default_rng(0).random((50, BATCH, TOKENS)) * share[-1])


def model(vocabulary: int = VOCABULARY) -> RecurrentNetwork:
    torch.manual_seed(0)
    network = RecurrentNetwork(RecurrentLanguageModel(), vocabulary, nn.Embedding(vocabulary, WIDTH))
    nn.init.normal_(network.embedding.weight, std=0.05)
    return network


class Plain(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, vocabulary)
        self.head.weight = self.embedding.weight

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embedding(tokens_BT))[0])


def naive(made: np.ndarray, vocabulary: int = VOCABULARY) -> Callable[[int], None]:
    network, data, at = Plain(vocabulary), torch.from_numpy(made), 0
    network.load_state_dict(model(vocabulary).state_dict(), strict=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)

    def run(steps: int) -> None:
        nonlocal at
        for _ in range(steps):
            at += 1
            tokens_BT = data[at % len(data)]
            optimizer.zero_grad()
            logits = network(tokens_BT[:, :-1])
            functional.cross_entropy(logits.flatten(0, 1), tokens_BT[:, 1:].flatten()).backward()
            optimizer.step()

    return run


def ours(
    data: np.ndarray,
    vocabulary: int = VOCABULARY,
    device: torch.device = CPU,
    directions: int | None = 1,
    engine: str = "cells",
) -> Callable[[int], None]:
    """Return fedtext's loop. ``directions`` is None for the engine ``reference``."""
    network, at = model(vocabulary).to(device), 0
    drawn = {name: parameter.detach() for name, parameter in network.named_parameters()}
    layout = Layout({name: tuple(tensor.shape) for name, tensor in drawn.items()})
    stack = Stack(layout, [vocabulary], Workspace(device))
    for name, tensor in stack.tensors(0).items():
        tensor.copy_(drawn[name])
    optimizer = LocalOptimizer(SGD(lr=LR, momentum=MOMENTUM), stack, LR)
    tokens_NT, one = data.reshape(-1, TOKENS), range(1)
    offsets, labels_N = TOKENS * np.arange(len(tokens_NT) + 1), np.zeros(len(tokens_NT), np.int64)
    texts = Texts(TokenSet(tokens_NT.astype(np.int32).reshape(-1), offsets, labels_N), vocabulary)
    assembler = Assembler(directions, cut=False, device=device, engine=engine, ahead=True)

    def run(steps: int) -> None:
        nonlocal at
        for _ in range(steps):
            at += 1
            batch, _ = assembler.single(texts, BATCH * (at % len(data)) + np.arange(BATCH))
            parameters = optimizer.begin(one, [])
            optimizer.step(one, functional_call(network, parameters, (batch,)).loss)
        optimizer.finish()

    return run


def variants(data: np.ndarray, vocabulary: int = VOCABULARY) -> dict[str, Callable[[int], None]]:
    """Return the two loops; each trains for the given number of steps."""
    engine = "cells" if compile_problem() else "native"  # as training.engine: auto
    return {"naive": naive(data, vocabulary), "ours": ours(data, vocabulary, engine=engine)}
