"""The language model of FedAtt (Ji et al. 2019, section III-C): embedding -> GRU -> dropout -> softmax over all words.

Sentences come framed, from their start sign to their end sign: the model reads all tokens but the last and predicts all
but the first. Tied, the output layer's weights are the embedding table: every step reads and moves all of it.

Legend: B sentences, T tokens of the longest one, S tokens read, V vocabulary, D embedding, H hidden, U distinct words.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from fedtext.models import cells, softmax
from fedtext.models.batch import Batch, Words
from fedtext.models.packing import Ints, Packing
from fedtext.schema import Strict


class GRULanguageModel(Strict):
    """FedAtt's small model: 300 units, one layer."""

    dim: int = Field(300, ge=1, description="of the word embedding; tied, as many as hidden units")
    hidden: int = Field(300, ge=1)
    layers: int = Field(1, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1, description="on what the output layer reads")
    tied: bool = True

    @model_validator(mode="after")
    def _fits(self) -> "GRULanguageModel":
        if self.tied and self.dim != self.hidden:
            raise ValueError(f"a tied model's dim ({self.dim}) and hidden ({self.hidden}) must be equal")
        return self


class Score(NamedTuple):
    """What a model thinks of a batch. Its perplexity over many is exp(sum of nats / sum of tokens)."""

    loss: Tensor  # mean nats per predicted token: the training objective
    nats: Tensor  # their sum, without gradient
    tokens: int


class LanguageModel(nn.Module):
    """Parameters ``embedding.weight`` V x D, ``rnn.*``, ``output.bias`` V and, if not tied, ``output.weight`` V x H.

    A batch that brings its words goes through our own layers and softmax, any other through torch's: the same sums.
    """

    def __init__(self, config: GRULanguageModel, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.dim)
        self.rnn = nn.GRU(config.dim, config.hidden, num_layers=config.layers, batch_first=True)
        self.rnn.flatten_parameters = lambda: None  # type: ignore[method-assign]  # as in models/recurrent.py
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.hidden, vocabulary)
        if config.tied:
            self.output.register_parameter("weight", None)
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)  # N(0, 1) would be logits of the order of sqrt(H)
        nn.init.zeros_(self.output.bias)

    def forward(self, batch: Batch) -> Score:
        if batch.words is not None:
            return self._cells(batch, batch.words)
        return self._reference(batch.tokens_BT, batch.lengths_B.cpu() - 1)

    def _reference(self, tokens_BT: Tensor, read_B: Tensor) -> Score:
        def packed(values: Tensor) -> Any:
            return pack_padded_sequence(values, read_B, batch_first=True, enforce_sorted=False)

        hidden_SH = self.dropout(self.rnn(packed(self.embedding(tokens_BT[:, :-1])))[0].data)
        weight_VH = self.embedding.weight if self.output.weight is None else self.output.weight
        logits_SV = functional.linear(hidden_SH, weight_VH, self.output.bias)
        nats_S = functional.cross_entropy(logits_SV, packed(tokens_BT[:, 1:]).data, reduction="none")
        return Score(nats_S.mean(), nats_S.detach().sum(), len(nats_S))

    def _cells(self, batch: Batch, words: Words) -> Score:
        packing, table_VD, weight_VH = words.packing, self.embedding.weight, self.output.weight
        if weight_VH is None:
            assert words.rows_U is not None, "a tied model reads the whole table"
            table_VD, weight_VH = Lookup.apply(table_VD, words.rows_U)
            words = replace(words, rows_U=None)
        hidden_PH = cells.recurrent(self.rnn, table_VD, words, nn.Dropout(0))
        hidden_SH = self.dropout(cells.Rows.apply(hidden_PH, packing.token_rows, packing.directions))
        text_S, step_S = (torch.from_numpy(x).to(hidden_SH.device) for x in (packing.text_CS[0], packing.step_S))
        targets_S = batch.tokens_BT[text_S, step_S + 1]
        tokens = len(targets_S)
        weights_S = hidden_SH.new_full((tokens,), 1 / tokens)
        loss, nats_S = softmax.nats(hidden_SH, weight_VH, self.output.bias, targets_S, weights_S)
        return Score(loss, nats_S.sum(), tokens)


class Lookup(Function):
    """(the rows of a tied table that a batch reads, the table for the softmax, its only other reader).

    The softmax's gradient is as large as the table, and new: the rows' gradient is added to it in place.
    """

    @staticmethod
    def forward(ctx: Any, table_VD: Tensor, rows_U: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(rows_U)
        return table_VD.index_select(0, rows_U), table_VD.view_as(table_VD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_UD: Tensor, grad_VD: Tensor) -> tuple[Tensor, None]:
        (rows_U,) = ctx.saved_tensors
        return grad_VD.index_add_(0, rows_U, grad_UD), None


def sentences(tokens_BT: NDArray[np.integer], lengths_B: Ints, device: torch.device, own: bool = True) -> Batch:
    """A batch of one client's framed sentences: padded vocabulary ids, and true lengths, both signs included.

    ``own``: for our own layers, whose words are those that are read: all but each sentence's last. ``tokens_BT`` of the
    batch stay ids of the vocabulary, which are also what is predicted.
    """
    if lengths_B.min() < 2:
        raise ValueError("a framed sentence has at least two tokens: its start sign and its end sign")
    tokens_BT = np.asarray(tokens_BT, np.int64)
    words = None
    if own:
        packing = Packing.of(lengths_B[None] - 1, 1, device)
        rows_U, word_S = np.unique(tokens_BT[packing.text_CS[0], packing.step_S], return_inverse=True)
        source_P = packing.source(word_S[None], len(rows_U))
        words = Words(torch.from_numpy(rows_U).to(device), torch.from_numpy(word_S).to(device), source_P, packing)
    tokens, lengths = (torch.from_numpy(numbers).to(device) for numbers in (tokens_BT, lengths_B))
    return Batch(tokens, lengths, torch.zeros_like(lengths), words)
