"""Embedding -> recurrent encoder -> pooling -> MLP (KTEPS paper, equations 1-4).

Legend: B batch, T time, D embedding, F features (hidden x directions), C classes.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedtext.models import cells
from fedtext.models.base import DENSE, ClassifierConfig, DenseInit, Embedding, Head, ModelConfig
from fedtext.models.batch import Batch, Words

KERNEL_WIDTH = 128  # hidden units that kernels are for: wider steps are large enough products by themselves


class Recurrent(ModelConfig):
    """Recurrent layers read a text word by word, in its order, and no numbers beside the words."""

    hidden: int
    layers: int = Field(1, ge=1, description="recurrent layers on top of one another")

    @property
    def directions(self) -> int:
        return 2 if self.name.startswith("bi") else 1


class RecurrentClassifier(Recurrent, ClassifierConfig):
    """Recurrent classifier: embedding, GRU or LSTM in one or both directions, pooling, dense layers.

    KTEPS paper, section 5.2: embedding, BiGRU(64), mean over the sequence, two-layer MLP."""

    name: Literal["bigru", "gru", "bilstm", "lstm"] = "bigru"
    embedding: Embedding = Embedding()
    hidden: int = Field(64, ge=1, description="units per direction")
    dropout: float = Field(0.0, ge=0, lt=1, description="on the embedding output and the pooled features")
    pooling: Literal["masked_mean", "mean", "last"] = Field(
        "masked_mean",
        description="of a text's states: their mean; the mean with those of padding; the last state of each direction",
    )
    recurrent_init: Literal["torch", "glorot"] = Field(
        "torch",
        description="how the recurrent layers start: torch's way, or as Keras has it, Glorot's for what reads the "
        "input, orthogonal for what reads the state, biases at zero, and an LSTM's forget gate at one, open",
    )
    head: Head = Head()
    dense_init: DenseInit = Field("torch", description=DENSE)
    in_order = True

    @property
    def pads(self) -> bool:
        return self.pooling == "mean"

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        return self.head.widths

    def width(self, features: int) -> int:
        return self.hidden * self.directions

    def build_encoder(self, weights: bool) -> nn.Module:
        return Encoder(self)


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
