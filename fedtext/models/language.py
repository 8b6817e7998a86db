"""Language models, and recurrent ones: embedding -> GRU or LSTM -> dropout -> projection, if there is one -> softmax.

With a GRU it is the model of FedAtt (Ji et al. 2019, section III-C), with an LSTM and a projection that of the
StackOverflow task (Reddi et al. 2020, appendix C).

Sentences include <s> and </s>: the inputs are all tokens but the last, and the targets all but the first. In a tied
model the weights of the output layer are the embedding table, so that every step uses and updates all of its rows.

Legend: B sentences, T tokens of the longest one, S input tokens, V vocabulary, D embedding, H hidden, U distinct words.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from fedtext.models import cells, softmax
from fedtext.models.base import DIM, INIT, Embedding, ModelConfig
from fedtext.models.batch import Batch, Words
from fedtext.models.functions import first_order
from fedtext.models.inits import InitField, RandomInit
from fedtext.models.recurrent import Recurrent
from fedtext.runtime.devices import to_device

OUTPUT = "head.weight"  # name of the weights of an output layer that is not the embedding
TIED = "whether the output layer's weights are the embedding"


class LanguageConfig(ModelConfig):
    """Base of language models. A subclass implements ``build``.

    Attributes:
        tied: Whether the output layer's weights are the embedding table.
        biased: Whether the output layer has a bias.
    """

    tied: bool
    biased: ClassVar[bool] = True
    language = True
    padding = False  # <pad> is never predicted

    @property
    def second_order(self) -> bool:
        return False

    @property
    def reach(self) -> int | None:
        """Largest number of tokens before a word that the network can read; None: any number."""
        return None

    @property
    def output_source(self) -> str | None:
        """The checkpoint whose output layer the network begins with; None: its weights are drawn, or the embedding."""
        return None

    @abstractmethod
    def build(self, vocabulary: int, embedding: nn.Embedding, weights: bool) -> "LanguageModel":
        """Build the network.

        Args:
            vocabulary: V, the size of the vocabulary without <pad>.
            embedding: The table, a placeholder for the one that is given with every call.
            weights: Whether to load the weights of a checkpoint, if the model has one.
        """

    def output_layer(self, width: int, vocabulary: int) -> nn.Linear:
        """Build the output layer from ``width`` features to ``vocabulary`` logits. In a tied model it has no weight."""
        head = nn.Linear(width, vocabulary, bias=self.biased)
        if self.tied:
            head.register_parameter("weight", None)
        if self.biased:
            nn.init.zeros_(head.bias)
        return head


class Score(NamedTuple):
    """Scores of a batch. The perplexity over many batches is exp(mean of all nats).

    Attributes:
        loss: The training objective, the mean of ``nats_S``.
        nats_S: -log p of each target token, without gradient.
        ranks_S: Number of words at least as probable as the target; None in training.
    """

    loss: Tensor
    nats_S: Tensor
    ranks_S: Tensor | None


class LanguageModel(nn.Module, ABC):
    """Base of networks that predict next words. Calling one with a batch returns its ``Score``.

    Its parameters include ``embedding.weight`` (V, D); if not tied, ``head.weight`` (V, H); and ``head.bias`` (V,) if
    the output layer has one.

    Attributes:
        reach: Largest number of tokens before a word that the network can read; None: any number.
    """

    embedding: nn.Embedding
    head: nn.Linear
    reach: int | None = None

    @property
    def output_weight(self) -> Tensor:
        """The weights of the output layer."""
        return self.embedding.weight if self.head.weight is None else self.head.weight

    @property
    def output_bias(self) -> Tensor | None:
        """The bias of the output layer; None: it has none."""
        return self.head.bias

    def bar(self, tokenizer: str) -> None:
        """Leave entries of a tokenizer that no text has out of predictions, where a network has to.

        Args:
            tokenizer: The tokenizer of byte pairs; empty: tokens are words.
        """

    @abstractmethod
    def hidden(self, tokens_BT: Tensor) -> Tensor:
        """Return hidden_BTH, the input of the output layer after each token of sentences of equal length."""

    @abstractmethod
    def step(self, tokens_B: Tensor, state_LB: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Process one more token of each of B sentences.

        Args:
            tokens_B: The tokens.
            state_LB: What the network keeps of the tokens before them, whose second axis is B; None: sentences begin.

        Returns:
            logits_BV of the next token, and the state after this one.
        """

    def following(self, tokens_BT: Tensor) -> Tensor:
        """Return logits_BTV of the next token after each token of sentences of equal length."""
        return self.logits(self.hidden(tokens_BT))

    @staticmethod
    def packed(values_BT: Tensor, read_B: Tensor) -> Tensor:
        """Lay the values of the first ``read_B`` steps of each sentence end to end, step by step: S of them."""
        return pack_padded_sequence(values_BT, read_B, batch_first=True, enforce_sorted=False).data

    def predicted(self, batch: Batch, read_B: Tensor) -> Tensor | None:
        """Return which of the S places are followed by a token to predict; None: all are, for nothing is given."""
        if not batch.prompted:
            return None
        step_T = torch.arange(batch.tokens_BT.shape[1] - 1, device=batch.labels_B.device)
        return self.packed(step_T >= batch.labels_B[:, None], read_B).nonzero()[:, 0]

    def logits(self, hidden_BH: Tensor) -> Tensor:
        """Return the logits over the vocabulary, whatever the number of leading axes."""
        return functional.linear(hidden_BH, self.output_weight, self.output_bias)

    def score(self, hidden_SH: Tensor, weight_VH: Tensor, targets_S: Tensor, native: bool = False) -> Score:
        """Return the score of targets.

        Args:
            hidden_SH: Input of the output layer, for each target.
            weight_VH: Weights of the output layer.
            targets_S: The tokens to predict.
            native: Whether the engine is ``native``.
        """
        if not torch.is_grad_enabled():
            nats_S, ranks_S = softmax.ranked(hidden_SH, weight_VH, self.output_bias, targets_S, native)
            return Score(nats_S.mean(), nats_S, ranks_S)
        weights_S = hidden_SH.new_full((len(targets_S),), 1 / len(targets_S))
        loss, nats_S = softmax.nats(hidden_SH, weight_VH, self.output_bias, targets_S, weights_S, native)
        return Score(loss, nats_S, None)


class WordEmbedding(Embedding):
    """The word embedding of a language model.

    In a tied model, rows of N(0, 1) would give logits of size sqrt(hidden), and a perplexity greater than the size of
    the vocabulary.
    """

    dim: int = Field(300, ge=1, description=DIM)
    init: InitField = Field(RandomInit(std=0.05), description=INIT)


class RecurrentLanguageModel(LanguageConfig, Recurrent):
    """GRU or LSTM language model: predicts the next word.

    FedAtt paper, section III-C: embedding, GRU(300), softmax over the vocabulary. The paper's small, medium and large
    models have 300, 650 and 1500 units, and embeddings of the same dimension. The StackOverflow task of Reddi et al.
    2020 has an LSTM of 670 units between an embedding and a projection of dimension 96.
    """

    name: Literal["gru_lm", "lstm_lm"] = "gru_lm"
    embedding: WordEmbedding = WordEmbedding()
    hidden: int = Field(300, ge=1, description="units; in a tied model without projection equal to embedding.dim")
    projection: bool = Field(
        False, description="whether a linear map to embedding.dim lies between the units and the output layer"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the input of the output layer")
    tied: bool = Field(True, description=TIED)

    @model_validator(mode="after")
    def _fits(self) -> "RecurrentLanguageModel":
        if self.directions > 1:
            raise ValueError("architecture: a language model reads words in one direction: set it to gru or lstm")
        if self.tied and self.embedding.dim != self.hidden and not self.projection:
            raise ValueError(
                f"a tied model's embedding.dim ({self.embedding.dim}) and hidden ({self.hidden}) must be equal: set "
                "both, or projection: true, or tied: false"
            )
        return self

    def build(self, vocabulary: int, embedding: nn.Embedding, weights: bool) -> "RecurrentNetwork":
        return RecurrentNetwork(self, vocabulary, embedding)


class RecurrentNetwork(LanguageModel):
    """The network of ``RecurrentLanguageModel``, with ``rnn.*`` and, if there is a projection, ``projection.*``.

    A batch with ``words`` is processed by the layers in models/cells.py and models/softmax.py, any other by torch's:
    the same sums.
    """

    def __init__(self, config: RecurrentLanguageModel, vocabulary: int, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        dim = config.embedding.dim
        self.rnn = config.cell(dim, config.hidden, num_layers=config.layers, batch_first=True)
        self.rnn.flatten_parameters = lambda: None  # type: ignore[method-assign]  # as in models/recurrent.py
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(config.hidden, dim) if config.projection else nn.Identity()
        self.head = config.output_layer(dim if config.projection else config.hidden, vocabulary)

    def forward(self, batch: Batch) -> Score:
        if batch.words is not None:
            return self._cells(batch, batch.words)
        return self._reference(batch, torch.from_numpy(batch.here.lengths_B - 1))

    def hidden(self, tokens_BT: Tensor) -> Tensor:
        hidden_BTH: Tensor = self.projection(self.rnn(self.embedding(tokens_BT))[0])
        return hidden_BTH

    def step(self, tokens_B: Tensor, state_LB: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The state of an LSTM has the hidden states of all layers, followed by their cells."""
        cells_too = isinstance(self.rnn, nn.LSTM)
        before = state_LB.chunk(2) if cells_too and state_LB is not None else state_LB
        hidden_B1H, after = self.rnn(self.embedding(tokens_B[:, None]), before)
        return self.logits(self.projection(hidden_B1H.squeeze(1))), torch.cat(after) if cells_too else after

    def _reference(self, batch: Batch, read_B: Tensor) -> Score:
        rows_BTD = self.embedding(batch.tokens_BT[:, :-1])
        rows = pack_padded_sequence(rows_BTD, read_B, batch_first=True, enforce_sorted=False)
        hidden_SH = self.projection(self.dropout(self.rnn(rows)[0].data))
        targets_S = self.packed(batch.tokens_BT[:, 1:], read_B).long()
        if (places := self.predicted(batch, read_B)) is not None:
            hidden_SH, targets_S = hidden_SH[places], targets_S[places]
        logits_SV = self.logits(hidden_SH)
        nats_S = functional.cross_entropy(logits_SV, targets_S, reduction="none")
        ranks_S = None if torch.is_grad_enabled() else softmax.ranks(logits_SV, targets_S)
        return Score(nats_S.mean(), nats_S.detach(), ranks_S)

    def _cells(self, batch: Batch, words: Words) -> Score:
        packing, table_VD, weight_VH = words.packing, self.embedding.weight, self.head.weight
        if weight_VH is None:
            assert words.rows_U is not None, "a tied model reads the whole table"
            table_VD, weight_VH = Lookup.apply(table_VD, words.rows_U)
            words = replace(words, rows_U=None)
        hidden_PH = cells.recurrent(self.rnn, table_VD, words, nn.Dropout(0))
        hidden_SH = self.projection(self.dropout(cells.Rows.apply(hidden_PH, packing.token_rows, packing.directions)))
        text_S, step_S = (to_device(x, hidden_SH.device) for x in (packing.places.text_CS[0], packing.places.step_S))
        targets_S = batch.tokens_BT[text_S, step_S + 1].long()
        if batch.prompted:
            places = (step_S >= batch.labels_B[text_S]).nonzero()[:, 0]
            hidden_SH, targets_S = hidden_SH[places], targets_S[places]
        return self.score(hidden_SH, weight_VH, targets_S, packing.engine == "native")


class Lookup(Function):
    """Returns the rows of a tied table that a batch uses, and the table itself for the softmax.

    The softmax's gradient is a new tensor of the table's size: the gradient of the rows is added to it in place.
    """

    @staticmethod
    def forward(ctx: Any, table_VD: Tensor, rows_U: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(rows_U)
        return table_VD.index_select(0, rows_U), table_VD.view_as(table_VD)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_UD: Tensor, grad_VD: Tensor) -> tuple[Tensor, None]:
        (rows_U,) = ctx.saved_tensors
        return grad_VD.index_add_(0, rows_U, grad_UD), None
