"""A text as the set of its words: embedding rows -> sum -> ReLU -> dense layers (RR-LDP paper, the network ``NN``), or
only the sum (``LR``).

The dense form would multiply a B x V matrix of zeros and ones with a V x D weight. Here that weight is the embedding
table and a text brings the rows of its distinct words: the same sums, without the zeros. A step is so short that most
of it would go into autograd's book-keeping, so that layers stand together in one function with a backward by hand.
Legend: B batch, T places, V vocabulary, D embedding, K features that stand beside a text's words, S words of all texts
of the batch.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from fedtext.models.base import DENSE, INIT, ClassifierConfig, DenseInit, Embedding, Widths
from fedtext.models.batch import Batch, Here
from fedtext.models.inits import InitField, RandomInit
from fedtext.models.output import two_logits
from fedtext.runtime.devices import to_device

Values = Literal["binary", "counts"]
VALUES = "what a word counts for in a text: 1, or as often as it occurs; times its value, where a corpus gives one"


class BagEmbedding(Embedding):
    """The first dense layer as a table: one row of ``dim`` weights per vocabulary entry.

    Its values start as widely
    spread as Glorot's for 5,000 words and 100 units, sqrt(2 / 5,100)."""

    dim: int = Field(100, ge=1, description="units of the first layer")
    init: InitField = Field(RandomInit(std=0.02), description=INIT)


class BagClassifier(ClassifierConfig):
    """Bag of words through a dense network (RR-LDP paper).

    RR-LDP paper: a bag of words through a dense network of 100, 50 and 25 ReLU units. ``embedding.dim`` is the width
    of the first layer."""

    name: Literal["bag"] = "bag"
    embedding: BagEmbedding = BagEmbedding()
    hidden: Widths = Field((50, 25), description="units of the layers after the first")
    dropout: float = Field(0.0, ge=0, lt=1, description="on the first layer's output")
    values: Values = Field("binary", description=VALUES)
    dense_init: DenseInit = Field("torch", description=DENSE)
    padding = False
    takes_values = True

    @property
    def as_sets(self) -> bool:
        return True

    @property
    def counting(self) -> Values:
        return self.values

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        return self.hidden

    @property
    def layers_of(self) -> Callable[..., nn.Sequential]:
        return Dense

    def build_encoder(self, weights: bool) -> nn.Module:
        return BagEncoder(self.embedding.dim, self.dropout)


class Weights(BagEmbedding):
    """A single unit's weights: one number per vocabulary entry."""

    dim: Literal[1] = Field(1, description="one weight per word")


class LogisticClassifier(ClassifierConfig):
    """Logistic regression on a bag of words, for two classes (RR-LDP paper).

    RR-LDP paper: logistic regression on a bag of words. One number per vocabulary entry and a bias, for two
    classes."""

    name: Literal["logistic"] = "logistic"
    embedding: Weights = Weights()
    values: Values = Field("binary", description=VALUES)
    output: Literal["sigmoid"] = Field("sigmoid", description="one unit for two classes")
    padding = False
    takes_values = True

    @property
    def as_sets(self) -> bool:
        return True

    @property
    def counting(self) -> Values:
        return self.values

    @property
    def layers_of(self) -> Callable[..., nn.Sequential]:
        return Dense

    def build_encoder(self, weights: bool) -> nn.Module:
        return BagEncoder(self.embedding.dim, relu=False)

    def build_head(self, width: int, classes: int) -> nn.Sequential:
        """The encoder gives the logit itself, and nothing is left to do."""
        return Dense(1, sigmoid=True) if width == 1 else super().build_head(width, classes)


class BagEncoder(nn.Module):
    """features_BD = ReLU(sum of the rows of a text's words + bias), the ReLU and the bias only if asked for, and the
    text's own K numbers behind, where there are some. A text's tokens have to be distinct: Texts takes care of that.
    The bias starts at zero."""

    def __init__(self, dim: int, dropout: float = 0.0, bias: bool = True, relu: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None
        self.dropout, self.relu = nn.Dropout(dropout), relu

    def forward(self, table: nn.Embedding, batch: Batch) -> Tensor:
        features_BF = with_features(_First.apply(table.weight, self.bias, batch.here, self.relu), batch)
        return self.dropout(features_BF) if self.dropout.p else features_BF


def with_features(text_BF: Tensor, batch: Batch) -> Tensor:
    """Return the features of the words, and behind them the text's own features."""
    return text_BF if batch.features_BK is None else torch.cat([text_BF, batch.features_BK], 1)


class Dense(nn.Sequential):
    """Fully connected layers with ReLU between them, like models/recurrent.py's ``mlp``, for one client at a time."""

    def __init__(self, *sizes: int, sigmoid: bool = False) -> None:
        super().__init__(*(nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes)))
        self.sigmoid = sigmoid

    def forward(self, features_BF: Tensor) -> Tensor:
        out_BC = features_BF
        if len(self):
            out_BC = _Layers.apply(features_BF, *(tensor for layer in self for tensor in (layer.weight, layer.bias)))
        return two_logits(out_BC) if self.sigmoid else out_BC


class _First(torch.autograd.Function):
    """ReLU(sums of the table's rows, each times its value, + bias). Beyond a text's length there is nothing to be
    read."""

    @staticmethod
    def forward(
        ctx: Any,
        table_VD: Tensor,
        bias_D: Tensor | None,
        here: Here,
        relu: bool,
    ) -> Tensor:
        tokens_BT, lengths_B, values_BT = here
        there_BT = np.arange(tokens_BT.shape[1]) < lengths_B[:, None]
        tokens_S = tokens_BT[there_BT].astype(np.int64)
        values_S = None if values_BT is None else values_BT[there_BT]
        features_BD = _sums(table_VD, tokens_S, lengths_B, values_S)
        if bias_D is not None:
            features_BD.add_(bias_D)
        if relu:
            features_BD.relu_()
        ctx.tokens_S, ctx.lengths_B, ctx.values_S, ctx.rows = tokens_S, lengths_B, values_S, len(table_VD)
        ctx.save_for_backward(*[features_BD] * relu)
        return features_BD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BD: Tensor) -> tuple[Tensor | None, ...]:
        """A word's gradient is the sum over the texts that have it: sums over bags again, with the roles changed.
        (torch's own backward adds rows up one token at a time.)"""
        for features_BD in ctx.saved_tensors:
            grad_BD = grad_BD * features_BD.sign()  # 1 where ReLU let pass, else 0
        bias_grad_D = grad_BD.sum(0) if ctx.needs_input_grad[1] else None
        if not ctx.needs_input_grad[0]:
            return None, bias_grad_D, None, None
        bits = len(grad_BD).bit_length()
        # (word, text) in one number each: numpy sorts numbers several times faster than torch does
        pairs_S = (ctx.tokens_S << bits) | np.repeat(np.arange(len(grad_BD)), ctx.lengths_B)
        values_S = ctx.values_S
        if values_S is None:
            pairs_S.sort()
        else:
            order_S = pairs_S.argsort()
            pairs_S, values_S = pairs_S[order_S], values_S[order_S]
        texts_V = np.bincount(ctx.tokens_S, minlength=ctx.rows)
        return _sums(grad_BD, pairs_S & ((1 << bits) - 1), texts_V, values_S), bias_grad_D, None, None


def _sums(
    rows: Tensor, chosen_S: NDArray[np.int64], counts_N: NDArray[np.int64], values_S: NDArray[np.float32] | None = None
) -> Tensor:
    """Sums of the chosen rows, each times its value if there are any: of the first counts_N[0] of them, the next
    counts_N[1], and so on; zero of none."""
    ends = np.zeros(len(counts_N) + 1, np.int64)
    np.cumsum(counts_N, out=ends[1:])
    chosen, bounds = (to_device(numbers, rows.device) for numbers in (chosen_S, ends))
    values = None if values_S is None else to_device(values_S, rows.device).to(rows)
    # detached: it need not prepare for torch's own backward
    return embedding_bag(chosen, rows.detach(), bounds, mode="sum", include_last_offset=True, per_sample_weights=values)


class _Layers(torch.autograd.Function):
    """(x, weight 1, bias 1, weight 2, ...) -> the last layer's output, with ReLU before each layer but the first."""

    @staticmethod
    def forward(ctx: Any, inputs_BF: Tensor, *parameters: Tensor) -> Tensor:
        inputs = [inputs_BF]
        for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
            inputs[-1] = inputs[-1].relu_() if len(inputs) > 1 else inputs_BF
            inputs.append(torch.addmm(bias, inputs[-1], weight.t()))
        ctx.save_for_backward(*inputs[:-1], *parameters[::2])
        return inputs[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        layers = len(ctx.saved_tensors) // 2
        inputs, weights = ctx.saved_tensors[:layers], ctx.saved_tensors[layers:]
        grads: list[Tensor] = []
        for layer in reversed(range(layers)):
            grads = [grad.t() @ inputs[layer], grad.sum(0), *grads]
            grad = grad @ weights[layer]
            if layer:
                grad.mul_(inputs[layer].sign())
        return grad, *grads
