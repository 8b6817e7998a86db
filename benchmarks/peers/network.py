"""The model and the clients' data in plain torch, for the systems that train the user's modules.

Legend: N texts, B batch, T time (the longest text of the batch), F features.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .module import Module
from .order import batches
from .workloads import Adapted, Recurrent, Task, Workload

Batch = tuple[Tensor, Tensor, Tensor]  # tokens_BT, lengths_B, labels_B


class Classifier(Module):
    """Embedding, packed bidirectional GRU, mean over each text's own length, MLP; parameters named as fedtext's."""

    def __init__(self, work: Recurrent) -> None:
        super().__init__()
        self.lr, self.momentum = work.lr, work.momentum
        self.embedding = nn.Embedding(work.vocabulary, work.dim)
        self.encoder = nn.ModuleDict({"rnn": nn.GRU(work.dim, work.hidden, batch_first=True, bidirectional=True)})
        self.head = nn.Sequential(nn.Linear(2 * work.hidden, work.head), nn.ReLU(), nn.Linear(work.head, 2))

    def forward(self, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(tokens_BT), lengths_B, batch_first=True, enforce_sorted=False)
        hidden_BTF, _ = pad_packed_sequence(self.encoder["rnn"](packed)[0], batch_first=True)
        return self.head(hidden_BTF.sum(1) / lengths_B.to(hidden_BTF.dtype).unsqueeze(1))

    def optimizer(self) -> torch.optim.Optimizer:
        return sgd(self.parameters(), self.lr, self.momentum)


def sgd(parameters: Iterator[nn.Parameter], lr: float, momentum: float = 0.0) -> torch.optim.SGD:
    """Make torch's fastest SGD of three, which fedtext uses too."""
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, fused=True)


class Texts:
    """One client's texts, padded once."""

    def __init__(self, tokens: list[Tensor], labels_N: Tensor) -> None:
        self.padded_NT = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        self.lengths_N = torch.tensor([len(text) for text in tokens])
        self.labels_N = labels_N

    def round(self, work: Workload, round_: int, client: int) -> Iterator[Batch]:
        """The batches of one round, in fedtext's order."""
        for chosen in batches(len(self.labels_N), work.batch, work.seed, round_, client):
            index = torch.from_numpy(chosen)
            lengths_B = self.lengths_N[index]
            yield self.padded_NT[index, : int(lengths_B.max())], lengths_B, self.labels_N[index]


@cache
def texts(inputs: Path) -> list[Texts]:
    """All clients' texts, loaded once in each process."""
    with np.load(inputs / "data.npz") as file:
        tokens_T, offsets, labels, sizes = (file[name] for name in ("tokens", "offsets", "labels", "sizes"))
    each = torch.from_numpy(tokens_T.astype(np.int64)).split(np.diff(offsets).tolist())
    ends = np.cumsum(sizes)
    return [
        Texts(list(each[end - size : end]), torch.from_numpy(labels[end - size : end]))
        for size, end in zip(sizes, ends, strict=True)
    ]


def network(task: Task, kind: type[Classifier] = Classifier) -> Module:
    """Return a model with the initial weights.

    Args:
        task: The task.
        kind: The class of a recurrent classifier.
    """
    work, begun = task.workload, {name: torch.from_numpy(tensor) for name, tensor in task.initial().items()}
    if isinstance(work, Adapted):
        from .adapters import AdaptedClassifier  # whose packages not every system's environment has

        module: Module = AdaptedClassifier(work, task.inputs / "checkpoint", len(begun["head.0.bias"]))
    else:
        module = kind(work)
    module.receive(begun)
    return module


def local_update(module: Module, task: Task, round_: int, client: int) -> int:
    """Train a client for one epoch, and return the number of its texts.

    Args:
        module: The model with what the client has received.
        task: The task.
        round_: Number of the round, from 1.
        client: Number of the client.
    """
    optimizer, held = module.optimizer(), texts(task.inputs)[client]
    for batch in held.round(task.workload, round_, client):
        optimizer.zero_grad()
        module.loss(*batch).backward()
        optimizer.step()
    return len(held.labels_N)
