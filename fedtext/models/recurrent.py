"""Embedding -> recurrent encoder -> pooling -> MLP (KTEPS paper, equations 1-4).

Legend: B batch, T time, D embedding, F features (hidden x directions), C classes.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedtext.errors import UserError
from fedtext.models import cells
from fedtext.models.bag import BagEncoder, Dense, FlatEncoder
from fedtext.models.batch import Batch, Words
from fedtext.models.config import (
    AnyModel,
    BagClassifier,
    GRULanguageModel,
    LogisticClassifier,
    RecurrentClassifier,
    TransformerClassifier,
    VectorClassifier,
)
from fedtext.models.language import LanguageModel
from fedtext.models.output import TwoLogits
from fedtext.models.transformer import TransformerEncoder


class Encoder(nn.Module):
    """E, H and SeqMean: tokens to one feature vector per text (equations 1 to 3).

    A batch that brings its words (the engines ``cells`` and ``triton``) goes through our own recurrent layers
    (models/cells.py), any other (``reference``) through torch's: the same sums.
    """

    def __init__(self, config: RecurrentClassifier) -> None:
        super().__init__()
        cell = nn.LSTM if config.name.endswith("lstm") else nn.GRU
        self.rnn = cell(
            config.embedding.dim,
            config.hidden,
            num_layers=config.layers,
            bidirectional=config.directions == 2,
            batch_first=True,
        )
        if config.recurrent_init == "glorot":
            _glorot(self.rnn)
        # A client's parameters live in its worker's memory, and each local update brings its own: they must not be
        # moved into a buffer of cuDNN's.
        self.rnn.flatten_parameters = lambda: None  # type: ignore[method-assign]
        self.dropout = nn.Dropout(config.dropout)
        self.pooling, self.directions = config.pooling, config.directions

    def forward(self, embedding: nn.Embedding, batch: Batch) -> Tensor:
        if batch.words is not None:
            pooled = self._cells(embedding, batch.words, batch.lengths_B)
        else:
            pooled = self._reference(embedding, batch)
        return self.dropout(pooled)

    def _reference(self, embedding: nn.Embedding, batch: Batch) -> Tensor:
        embedded_BTD = self.dropout(embedding(batch.tokens_BT))
        here_B = torch.from_numpy(batch.here.lengths_B)  # torch wants them on the CPU
        packed = pack_padded_sequence(embedded_BTD, here_B, batch_first=True, enforce_sorted=False)
        hidden, last = self.rnn(packed)
        if self.pooling == "last":
            last = last[0] if isinstance(last, tuple) else last
            return torch.cat(list(last[-self.directions :]), dim=1)
        hidden_BTF, _ = pad_packed_sequence(hidden, batch_first=True)  # zero beyond each length
        return hidden_BTF.sum(1) / batch.lengths_B.to(hidden_BTF.dtype).unsqueeze(1)

    def _cells(self, embedding: nn.Embedding, words: Words, lengths_B: Tensor) -> Tensor:
        hidden_PH = cells.recurrent(self.rnn, embedding.weight, words, self.dropout)
        if self.pooling == "last":
            return cells.final(hidden_PH, words.packing)
        return cells.summed(hidden_PH, words.packing) / lengths_B.to(hidden_PH.dtype).unsqueeze(1)


def _glorot(rnn: nn.GRU | nn.LSTM) -> None:
    """Keras's start, gate by gate. Each gate has two biases here, which are added."""
    for name, parameter in rnn.named_parameters():
        gates = parameter.data.split(rnn.hidden_size)
        for number, gate in enumerate(gates):
            if name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            else:
                is_forget_gate = len(gates) == 4 and number == 1 and name.startswith("bias_ih")
                nn.init.constant_(gate, float(is_forget_gate))


def mlp(*sizes: int, sigmoid: bool = False) -> nn.Sequential:
    """G: fully connected layers with ReLU between them (equation 4)."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([TwoLogits()] if sigmoid else []))


class Parts:
    """The components a method builds its network from. ``features`` is F, the width of the encoder's output, and
    ``clients`` their number; ``corpus_features`` counts those that a text has beside its words. Without ``weights``
    those of a checkpoint are left unread: the network is given others with every call. Raises UserError if the model is
    for another number of classes."""

    def __init__(
        self, config: AnyModel, classes: int, clients: int = 1, corpus_features: int = 0, weights: bool = True
    ) -> None:
        self.config, self.classes, self.clients, self.weights = config, classes, clients, weights
        self.sigmoid = config.output == "sigmoid"
        if self.sigmoid and classes != 2:
            raise UserError(f"model.output: one sigmoid unit tells 2 classes apart, and the corpus has {classes}")
        self.features: int = config.embedding.dim
        self.hidden: tuple[int, ...] = ()
        self.layers: Callable[..., nn.Sequential] = Dense
        match config:
            case BagClassifier():
                self.hidden = config.hidden
            case VectorClassifier():
                self.hidden = config.hidden
                self.features = _flat(config) * config.embedding.dim + corpus_features
            case RecurrentClassifier():
                self.layers = mlp
                self.features = config.hidden * config.directions
                self.hidden = config.head.widths
            case TransformerClassifier():
                self.layers = mlp
                self.hidden = config.head.widths

    def embedding(self) -> nn.Embedding:
        # One row only: the real table, as many rows as a client's vocabulary has, is given with every call.
        return nn.Embedding(1, self.config.embedding.dim)

    def encoder(self) -> nn.Module:
        match self.config:
            case BagClassifier(dropout=dropout):
                return BagEncoder(self.features, dropout)
            case LogisticClassifier():
                return BagEncoder(self.features, relu=False)
            case VectorClassifier(pooling="mean", dropout=dropout):
                return BagEncoder(self.config.embedding.dim, dropout, bias=False, relu=False)
            case VectorClassifier(dropout=dropout):
                return FlatEncoder(_flat(self.config), dropout)
            case TransformerClassifier():
                return TransformerEncoder(self.config, self.weights)
        assert isinstance(self.config, RecurrentClassifier), "a language model has no encoder"
        return Encoder(self.config)

    def head(self, features: int | None = None) -> nn.Sequential:
        """G, for the encoder's features or any other number of them. A logistic model's encoder gives the logit itself
        and there is nothing left to do."""
        features = features or self.features
        if isinstance(self.config, LogisticClassifier) and features == 1:
            return Dense(1, sigmoid=True)
        made = self.layers(features, *self.hidden, 1 if self.sigmoid else self.classes, sigmoid=self.sigmoid)
        if not isinstance(self.config, LogisticClassifier | GRULanguageModel) and self.config.dense_init == "glorot":
            for layer in made:
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
                    nn.init.zeros_(layer.bias)
        return made

    def projection(self) -> nn.Linear:
        """A single fully connected layer, output as wide as its input (KTEPS paper, below equation 7)."""
        return nn.Linear(self.features, self.features)


def _flat(config: VectorClassifier) -> int:
    """How many vectors lie side by side."""
    return config.words if config.pooling == "flat" and config.words != "all" else 1


def whole(parts: Parts) -> nn.Module:
    """The network of a method that asks for nothing special."""
    if isinstance(parts.config, GRULanguageModel):
        return LanguageModel(parts.config, parts.classes, parts.embedding())
    return SingleBranch(parts)


class SingleBranch(nn.Module):
    """The plain classifier: logits_BC of equations 1-4."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.encoder, self.head = parts.embedding(), parts.encoder(), parts.head()

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.encoder(self.embedding, batch))
