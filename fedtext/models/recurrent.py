"""Embedding -> recurrent encoder -> pooling -> MLP (KTEPS paper, equations 1-4).

Legend: B batch, T time, D embedding, F features (hidden x directions), C classes.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedtext.models import cells
from fedtext.models.config import Head, RecurrentClassifier

TABLE = "embedding.weight"  # the one parameter whose first axis is the vocabulary


class Encoder(nn.Module):
    """E, H and SeqMean: tokens to one feature vector per text (equations 1 to 3).

    ``engine`` chooses how the recurrent layers are computed, not what: ``reference`` is torch's own implementation,
    ``cells`` ours (models/cells.py).
    """

    def __init__(self, config: RecurrentClassifier) -> None:
        super().__init__()
        cell = nn.LSTM if config.name.endswith("lstm") else nn.GRU
        self.rnn = cell(
            config.embedding.dim,
            config.hidden,
            num_layers=config.layers,
            bidirectional=config.name.startswith("bi"),
            batch_first=True,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.pooling = config.pooling
        self.engine = "reference"

    def forward(self, embedding: nn.Embedding, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        if self.pooling == "mean":  # the other reading of the paper: padding is read and averaged like words
            lengths_B = torch.full_like(lengths_B, tokens_BT.shape[1])
        pooled = self._cells if self.engine == "cells" else self._reference
        return self.dropout(pooled(embedding, tokens_BT, lengths_B))

    def _reference(self, embedding: nn.Embedding, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        embedded_BTD = self.dropout(embedding(tokens_BT))
        packed = pack_padded_sequence(embedded_BTD, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        hidden, last = self.rnn(packed)
        if self.pooling == "last":
            last = last[0] if isinstance(last, tuple) else last
            return torch.cat(list(last[-2 if self.rnn.bidirectional else -1 :]), dim=1)
        hidden_BTF, _ = pad_packed_sequence(hidden, batch_first=True)  # zero beyond each length
        return hidden_BTF.sum(1) / lengths_B.to(hidden_BTF.dtype).unsqueeze(1)

    def _cells(self, embedding: nn.Embedding, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        hidden_KSH, packing = cells.recurrent(self.rnn, embedding.weight, tokens_BT, lengths_B, self.dropout)
        if self.pooling == "last":
            return cells.final(hidden_KSH, packing)
        return cells.summed(hidden_KSH, packing, len(lengths_B)) / lengths_B.to(hidden_KSH.dtype).unsqueeze(1)


def mlp(features: int, classes: int, head: Head) -> nn.Sequential:
    """G: fully connected layers with ReLU between them (equation 4)."""
    sizes = [features, *[head.hidden] * (head.layers - 1), classes]
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Parts:
    """The components a method builds its network from. ``features`` is F, the width of the encoder's output."""

    def __init__(self, config: RecurrentClassifier, classes: int) -> None:
        self.config, self.classes = config, classes
        self.features = config.hidden * (2 if config.name.startswith("bi") else 1)

    def embedding(self) -> nn.Embedding:
        # One row only: the real table, as many rows as a client's vocabulary has, is given with every call.
        return nn.Embedding(1, self.config.embedding.dim)

    def encoder(self) -> Encoder:
        return Encoder(self.config)

    def head(self) -> nn.Sequential:
        return mlp(self.features, self.classes, self.config.head)

    def projection(self) -> nn.Linear:
        """A single fully connected layer, output as wide as its input (KTEPS paper, below equation 7)."""
        return nn.Linear(self.features, self.features)


class SingleBranch(nn.Module):
    """The plain classifier: logits_BC of equations 1-4."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.encoder, self.head = parts.embedding(), parts.encoder(), parts.head()

    def forward(self, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding, tokens_BT, lengths_B))
