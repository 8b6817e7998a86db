"""Embedding -> recurrent encoder -> pooling -> MLP (KTEPS paper, equations 1-4).

Legend: B batch, T time, D embedding, F features (hidden x directions), C classes.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedtext.errors import UserError
from fedtext.models import cells
from fedtext.models.base import DENSE, ClassifierConfig, DenseInit, Embedding, Head, ModelConfig
from fedtext.models.batch import Batch, Words
from fedtext.models.plain import looks_up

KINDS = {"gru": (nn.GRU, 1), "bigru": (nn.GRU, 2), "lstm": (nn.LSTM, 1), "bilstm": (nn.LSTM, 2)}  # cell, directions
KERNEL_WIDTH = 128  # largest number of hidden units for kernels: steps of wider layers are large products already


class Recurrent(ModelConfig):
    """Base of models with recurrent layers, which process the words of a text in their order.

    Attributes:
        architecture: Cell and directions: gru, bigru, lstm or bilstm. Empty: the name says so. A class that derives
            from a model of fedtext and has another name states it.
    """

    architecture: ClassVar[str] = ""
    hidden: int
    layers: int = Field(1, ge=1, description="number of recurrent layers")

    @model_validator(mode="after")
    def _states_architecture(self) -> "Recurrent":
        if self._kind not in KINDS:
            raise ValueError(
                f"{self.name!r} does not say which recurrent layers the model has: set architecture in "
                f"{type(self).__name__} to one of {', '.join(KINDS)}"
            )
        return self

    @property
    def _kind(self) -> str:
        """The key of ``KINDS``."""
        return self.architecture or self.name.removesuffix("_lm")

    @property
    def native(self) -> bool:
        return True

    @property
    def cell(self) -> type[nn.GRU | nn.LSTM]:
        """The recurrent layers' class."""
        return KINDS[self._kind][0]

    @property
    def directions(self) -> int:
        """Number of directions, 1 or 2."""
        return KINDS[self._kind][1]


class RecurrentClassifier(Recurrent, ClassifierConfig):
    """Recurrent classifier: embedding, GRU or LSTM in one or both directions, pooling, dense layers.

    The defaults are those of the KTEPS paper, section 5.2: BiGRU(64), mean over the sequence, two-layer MLP.
    """

    name: Literal["bigru", "gru", "bilstm", "lstm"] = "bigru"
    embedding: Embedding = Embedding()
    hidden: int = Field(64, ge=1, description="units per direction")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the embedding output and the pooled features")
    pooling: Literal["masked_mean", "mean", "last"] = Field(
        "masked_mean",
        description="masked_mean: mean of a text's states; mean: with those of padding; last: the last state of each "
        "direction",
    )
    recurrent_init: Literal["torch", "glorot"] = Field(
        "torch",
        description="initialisation of the recurrent layers; torch: torch's own; glorot: that of Keras, Glorot's for "
        "input weights, orthogonal recurrent weights, zero biases, and 1 for the bias of an LSTM's forget gate",
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
    """E, H and SeqMean: from the tokens of a text to its features_BF (KTEPS paper, equations 1 to 3).

    A batch with ``words`` (engines ``cells`` and ``triton``) is processed by the layers in models/cells.py, any other
    (engine ``reference``) by torch's: the same sums.
    """

    def __init__(self, config: RecurrentClassifier) -> None:
        super().__init__()
        self.rnn = config.cell(
            config.embedding.dim,
            config.hidden,
            num_layers=config.layers,
            bidirectional=config.directions == 2,
            batch_first=True,
        )
        if config.recurrent_init == "glorot":
            _glorot(self.rnn)
        # Each local update has its own parameters in its worker's memory: they must not be moved into a cuDNN buffer.
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
        here_B = torch.from_numpy(batch.here.lengths_B)  # torch needs them on the CPU
        packed = pack_padded_sequence(embedded_BTD, here_B, batch_first=True, enforce_sorted=False)
        hidden, last = self.rnn(packed)
        if self.pooling == "last":
            last = last[0] if isinstance(last, tuple) else last
            return torch.cat(list(last[-self.directions :]), dim=1)
        hidden_BTF, _ = pad_packed_sequence(hidden, batch_first=True)  # zero beyond each length
        return hidden_BTF.sum(1) / batch.lengths_B.to(hidden_BTF.dtype).unsqueeze(1)

    def _cells(self, embedding: nn.Embedding, words: Words, lengths_B: Tensor) -> Tensor:
        means = words.packing.engine == "native" and self.pooling != "last"
        table: nn.Embedding | Tensor = embedding.weight if looks_up(embedding) else embedding
        if embedding.padding_idx is not None and words.rows_U is None:  # tokens are numbers of the batch's words
            raise UserError(f"{type(embedding).__name__} has a padding_idx: set training.engine to reference")
        hidden_PH = cells.recurrent(self.rnn, table, words, self.dropout, means)
        if means:
            return hidden_PH
        if self.pooling == "last":
            return cells.final(hidden_PH, words.packing)
        return cells.summed(hidden_PH, words.packing) / lengths_B.to(hidden_PH.dtype).unsqueeze(1)


def _glorot(rnn: nn.GRU | nn.LSTM) -> None:
    """Initialise a recurrent layer as Keras does, gate by gate. Each gate has two biases, which are added."""
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
