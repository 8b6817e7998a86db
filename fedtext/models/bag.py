"""A text as the set of its words: embedding rows -> sum -> ReLU -> dense layers (RR-LDP paper, the network ``NN``).

The dense form would multiply a B x V matrix of zeros and ones with a V x D weight. Here that weight is the embedding
table and a text brings the rows of its distinct words: the same sums, without the zeros. A step is so short that most
of it would go into autograd's book-keeping, so that layers stand together in one function with a backward by hand.
Legend: B batch, T places, V vocabulary, D embedding, S words of all texts of the batch.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from fedtext.models.batch import Batch
from fedtext.models.config import BagClassifier


class BagEncoder(nn.Module):
    """features_BD = ReLU(sum of the rows of a text's words + bias). A text's tokens have to be distinct: Texts takes
    care of that. The bias starts at zero."""

    def __init__(self, config: BagClassifier) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.embedding.dim))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, embedding: nn.Embedding, batch: Batch) -> Tensor:
        features_BD = _First.apply(embedding.weight, self.bias, batch.tokens_BT, batch.lengths_B)
        return self.dropout(features_BD) if self.dropout.p else features_BD


class Dense(nn.Sequential):
    """Fully connected layers with ReLU between them, like models/recurrent.py's ``mlp``, for one client at a time."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*(nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes)))

    def forward(self, features_BF: Tensor) -> Tensor:
        return _Layers.apply(features_BF, *(tensor for layer in self for tensor in (layer.weight, layer.bias)))


class _First(torch.autograd.Function):
    """ReLU(sums of the table's rows + bias). Beyond a text's length there is nothing to be read."""

    @staticmethod
    def forward(ctx: Any, table_VD: Tensor, bias_D: Tensor, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        tokens, lengths = tokens_BT.cpu().numpy(), lengths_B.cpu().numpy()
        tokens_S = tokens[np.arange(tokens.shape[1]) < lengths[:, None]].astype(np.int64)
        features_BD = _sums(table_VD, tokens_S, lengths).add_(bias_D).relu_()
        ctx.tokens_S, ctx.lengths_B, ctx.rows = tokens_S, lengths, len(table_VD)
        ctx.save_for_backward(features_BD)
        return features_BD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BD: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """A word's gradient is the sum over the texts that have it: sums over bags again, with the roles changed.
        (torch's own backward adds rows up one token at a time.)"""
        (features_BD,) = ctx.saved_tensors
        grad_BD = grad_BD * features_BD.sign()  # 1 where ReLU let pass, else 0
        bits = len(grad_BD).bit_length()
        # (word, text) in one number each: numpy sorts numbers several times faster than torch does
        pairs_S = (ctx.tokens_S << bits) | np.repeat(np.arange(len(grad_BD)), ctx.lengths_B)
        pairs_S.sort()
        texts_V = np.bincount(ctx.tokens_S, minlength=ctx.rows)
        return _sums(grad_BD, pairs_S & ((1 << bits) - 1), texts_V), grad_BD.sum(0), None, None


def _sums(rows: Tensor, chosen_S: NDArray[np.int64], counts_N: NDArray[np.int64]) -> Tensor:
    """Sums of the chosen rows: of the first counts_N[0] of them, the next counts_N[1], and so on; zero of none."""
    ends = np.zeros(len(counts_N) + 1, np.int64)
    np.cumsum(counts_N, out=ends[1:])
    chosen, bounds = (torch.from_numpy(numbers).to(rows.device) for numbers in (chosen_S, ends))
    # detached: it need not prepare for torch's own backward
    return embedding_bag(chosen, rows.detach(), bounds, mode="sum", include_last_offset=True)


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
