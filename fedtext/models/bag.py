"""Classifiers on bags of words: embedding rows -> sum -> ReLU -> dense layers (RR-LDP paper, the network ``NN``), or
only the sum (``LR``).

The dense form would multiply a B x V matrix of zeros and ones with a V x D weight. Here that weight is the embedding
table, and only the rows of a text's distinct words are added: the same sums, without the zeros. A step is so short that
autograd's overhead would dominate it, so several layers are one function with its own backward pass.

Legend: B batch, T places, V vocabulary, D embedding, K features of a text beside its words, S words of all texts of the
batch.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from fedtext.models.base import DENSE, INIT, ClassifierConfig, DenseInit, Embedding, Widths
from fedtext.models.batch import Batch, Here
from fedtext.models.functions import first_order
from fedtext.models.inits import InitField, RandomInit
from fedtext.models.native_bag import BagLoss, in_c, words
from fedtext.models.output import two_logits
from fedtext.models.plain import is_plain
from fedtext.runtime.devices import to_device

Values = Literal["binary", "counts"]
VALUES = "value of a word in a text: 1, or its count; multiplied by the value that the corpus gives, if it does"


class BagEmbedding(Embedding):
    """The first dense layer as a table: a row of ``dim`` weights for each entry of the vocabulary.

    Its initial standard deviation is Glorot's for 5,000 words and 100 units, sqrt(2 / 5,100).
    """

    dim: int = Field(100, ge=1, description="units of the first layer")
    init: InitField = Field(RandomInit(std=0.02), description=INIT)


class BagClassifier(ClassifierConfig):
    """Bag of words through a dense network (RR-LDP paper).

    The hidden layers have 100, 50 and 25 ReLU units, as in the paper. ``embedding.dim`` is the width of the first one.
    """

    name: Literal["bag"] = "bag"
    embedding: BagEmbedding = BagEmbedding()
    hidden: Widths = Field((50, 25), description="units of the layers after the first")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the first layer's output")
    values: Values = Field("binary", description=VALUES)
    dense_init: DenseInit = Field("torch", description=DENSE)
    padding = False
    takes_values = True

    @property
    def second_order(self) -> bool:
        return False

    @property
    def native(self) -> bool:
        return True

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
    """The weights of a single unit: one for each entry of the vocabulary."""

    dim: Literal[1] = Field(1, description="one weight per word")


class LogisticClassifier(ClassifierConfig):
    """Logistic regression on a bag of words, for two classes (RR-LDP paper).

    Its parameters are a weight for each entry of the vocabulary, and a bias.
    """

    name: Literal["logistic"] = "logistic"
    embedding: Weights = Weights()
    values: Values = Field("binary", description=VALUES)
    output: Literal["sigmoid"] = Field("sigmoid", description="one unit for two classes")
    padding = False
    takes_values = True

    @property
    def second_order(self) -> bool:
        return False

    @property
    def native(self) -> bool:
        return True

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
        """Build a head without layers, since the encoder's output is the logit."""
        return Dense(1, sigmoid=True) if width == 1 else super().build_head(width, classes)


class BagEncoder(nn.Module):
    """An encoder that adds the rows of a text's words: ReLU(sum + bias), followed by the text's K features.

    Args:
        dim: D.
        dropout: Dropout on the output.
        bias: Whether there is a bias. It is initially 0.
        relu: Whether the ReLU is applied.

    The tokens of a text must be distinct, which ``ModelConfig.as_sets`` takes care of.
    """

    def __init__(self, dim: int, dropout: float = 0.0, bias: bool = True, relu: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None
        self.dropout, self.relu = nn.Dropout(dropout), relu

    def forward(self, table: nn.Embedding, batch: Batch) -> Tensor:
        first = _First.apply(table.weight, self.bias, batch.here, self.relu, batch.native)
        features_BF = with_features(first, batch)
        return self.dropout(features_BF) if self.dropout.p else features_BF


def mean_cross_entropy(table: nn.Embedding, encoder: nn.Module, head: nn.Module, batch: Batch) -> Tensor | None:
    """Compute the mean cross-entropy of a classifier on bags of words as one function in C.

    Args:
        table: The embedding.
        encoder, head: The other layers of the classifier.
        batch: The batch.

    Returns:
        The loss; None if the classifier is another one, or the engine is not ``native``.
    """
    if not batch.native or batch.features_BK is not None:
        return None
    if not is_plain(encoder, BagEncoder) or not is_plain(head, Dense) or (encoder.training and encoder.dropout.p):
        return None
    if not head.scores(table.weight.shape[1]):
        return None
    return BagLoss.apply(batch, encoder.relu, table.weight, encoder.bias, *head.parameters_in_order())


def with_features(text_BF: Tensor, batch: Batch) -> Tensor:
    """Concatenate the encoder's features and the texts' own features, if there are some."""
    return text_BF if batch.features_BK is None else torch.cat([text_BF, batch.features_BK], 1)


class Dense(nn.Sequential):
    """Fully connected layers with ReLU between them, like ``output.mlp`` but faster, for one client at a time."""

    def __init__(self, *sizes: int, sigmoid: bool = False) -> None:
        super().__init__(*(nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes)))
        self.sigmoid = sigmoid

    def forward(self, features_BF: Tensor) -> Tensor:
        out_BC = features_BF
        if len(self):
            out_BC = _Layers.apply(features_BF, *self.parameters_in_order())
        return two_logits(out_BC) if self.sigmoid else out_BC

    def parameters_in_order(self) -> list[Any]:
        """Return weight and bias of each layer."""
        return [tensor for layer in self for tensor in (layer.weight, layer.bias)]

    def scores(self, width: int) -> bool:
        """Whether C computes its outputs. There a single unit is always that of two classes, and widths have to fit.

        Args:
            width: The width of its input.
        """
        sizes = [width, *(layer.out_features for layer in self)]
        fits = all(layer.in_features == size for layer, size in zip(self, sizes, strict=False))
        return fits and self.sigmoid == (sizes[-1] == 1)


class _First(torch.autograd.Function):
    """ReLU(sum of the table's rows, each times its value, + bias). Entries beyond a text's length are ignored."""

    @staticmethod
    def forward(
        ctx: Any,
        table_VD: Tensor,
        bias_D: Tensor | None,
        here: Here,
        relu: bool,
        native: bool,
    ) -> Tensor:
        lengths_B, (tokens_S, values_S) = here.lengths_B, words(here)
        if native:
            features_BD = table_VD.new_empty(len(lengths_B), table_VD.shape[1])
            in_c("sums", features_BD, tokens_S, lengths_B, values_S, table_VD.detach())
        else:
            features_BD = _sums(table_VD, tokens_S, lengths_B, values_S)
        if bias_D is not None:
            features_BD.add_(bias_D)
        if relu:
            features_BD.relu_()
        ctx.tokens_S, ctx.lengths_B, ctx.values_S, ctx.rows = tokens_S, lengths_B, values_S, len(table_VD)
        ctx.native = native
        ctx.save_for_backward(*[features_BD] * relu)
        return features_BD

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_BD: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of a word's row is the sum over the texts that have it: a sum over bags, with texts and words
        exchanged. (torch's own backward pass adds the rows of one token at a time.)"""
        for features_BD in ctx.saved_tensors:
            grad_BD = grad_BD * features_BD.sign()  # 1 where ReLU let pass, else 0
        bias_grad_D = grad_BD.sum(0) if ctx.needs_input_grad[1] else None
        if not ctx.needs_input_grad[0]:
            return None, bias_grad_D, None, None, None
        if ctx.native:
            grad_VD = grad_BD.new_zeros(ctx.rows, grad_BD.shape[1])
            in_c("spread", grad_VD, ctx.tokens_S, ctx.lengths_B, ctx.values_S, grad_BD)
            return grad_VD, bias_grad_D, None, None, None
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
        return _sums(grad_BD, pairs_S & ((1 << bits) - 1), texts_V, values_S), bias_grad_D, None, None, None


def _sums(
    rows: Tensor, chosen_S: NDArray[np.int64], counts_N: NDArray[np.int64], values_S: NDArray[np.float32] | None = None
) -> Tensor:
    """Add rows in groups: the first counts_N[0] of the chosen rows, the next counts_N[1], and so on.

    Each row is multiplied by its value, if values are given. The sum of no rows is 0.
    """
    ends = np.zeros(len(counts_N) + 1, np.int64)
    np.cumsum(counts_N, out=ends[1:])
    chosen, bounds = (to_device(numbers, rows.device) for numbers in (chosen_S, ends))
    values = None if values_S is None else to_device(values_S, rows.device).to(rows)
    # detached: it need not prepare for torch's own backward
    return embedding_bag(chosen, rows.detach(), bounds, mode="sum", include_last_offset=True, per_sample_weights=values)


class _Layers(torch.autograd.Function):
    """(x, weight 1, bias 1, weight 2, ...) -> output of the last layer, with ReLU between layers."""

    @staticmethod
    def forward(ctx: Any, inputs_BF: Tensor, *parameters: Tensor) -> Tensor:
        inputs = [inputs_BF]
        for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
            inputs[-1] = inputs[-1].relu_() if len(inputs) > 1 else inputs_BF
            inputs.append(torch.addmm(bias, inputs[-1], weight.t()))
        ctx.save_for_backward(*inputs[:-1], *parameters[::2])
        return inputs[-1]

    @staticmethod
    @first_order
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
