"""Recurrent layers with a backward pass of our own: the sums of nn.GRU and nn.LSTM in fewer and larger operations.

Each distinct word is projected once, however often it occurs; the steps follow (models/steps.py), and what becomes of
their outputs. All clients of a stack go through together: ``torch.vmap`` of the loss of one client is all it takes.

Legend: P packed rows, H hidden, G gates, N projected inputs, S token places, K directions, F = K x H features, B texts.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from fedtext.models.batch import Words
from fedtext.models.packing import Packing
from fedtext.models.steps import GRUSteps, LSTMSteps, merged


class Rows(Function):
    """The states in ``rows``, those of a token's K directions side by side: M x F."""

    @staticmethod
    def forward(hidden_PH: Tensor, rows: Tensor, directions: int) -> Tensor:
        return hidden_PH.index_select(0, rows).view(-1, directions * hidden_PH.shape[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        hidden_PH, ctx.rows, _ = inputs
        ctx.shape = hidden_PH.shape

    @staticmethod
    def backward(ctx: Any, grad_MF: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad_MF.reshape(len(ctx.rows), -1)
        return grad.new_zeros(ctx.shape).index_add_(0, ctx.rows, grad), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, hidden: Tensor, rows: Tensor, directions: int) -> tuple[Tensor, int]:
        together = merged(info.batch_size, in_dims[0], hidden)
        return Rows.apply(together, rows, directions).unflatten(0, (info.batch_size, -1)), 0


class Sums(Function):
    """The sum over each text's steps: B x F. The order of the steps does not matter, so nothing is turned back."""

    @staticmethod
    def forward(hidden_PH: Tensor, packing: Packing) -> Tensor:
        width, places = hidden_PH.shape[1], packing.texts + 1  # the last place collects the padding
        sums = hidden_PH.new_zeros(packing.lanes * places, width).index_add_(0, packing.text_rows, hidden_PH)
        sums_CKBH = sums.view(packing.clients, packing.directions, places, width)[:, :, :-1]
        return sums_CKBH.transpose(1, 2).reshape(-1, packing.directions * width)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.packing = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_BF: Tensor) -> tuple[Tensor | None, ...]:
        packing: Packing = ctx.packing
        grad_CKBH = grad_BF.view(packing.clients, packing.texts, packing.directions, -1).transpose(1, 2)
        spread = functional.pad(grad_CKBH, (0, 0, 0, 1)).reshape(-1, grad_CKBH.shape[3])
        return spread.index_select(0, packing.text_rows), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, hidden: Tensor, packing: Packing) -> tuple[Tensor, int]:
        together = merged(info.batch_size, in_dims[0], hidden)
        return Sums.apply(together, packing).unflatten(0, (info.batch_size, -1)), 0


def recurrent(rnn: nn.GRU | nn.LSTM, table: Tensor, words: Words, dropout: nn.Dropout) -> Tensor:
    """The outputs hidden_PH of ``rnn``'s last layer over the embedded words."""
    packing = words.packing
    table_UD = table if words.rows_U is None else functional.embedding(words.rows_U, table)
    hidden_PH = table_UD
    for layer in range(rnn.num_layers):
        if layer:
            inputs, source_P = Rows.apply(hidden_PH, packing.token_rows, packing.directions), packing.deep_source
        elif dropout.training and dropout.p:  # dropout strikes every occurrence of a word by itself
            inputs, source_P = dropout(functional.embedding(words.word_S, table_UD)), packing.deep_source
        else:
            inputs, source_P = table_UD, words.source_P
        layer_of = _gru if isinstance(rnn, nn.GRU) else _lstm
        hidden_PH = layer_of(_parameters(rnn, layer), inputs, source_P, packing)
    return hidden_PH


def _parameters(rnn: nn.GRU | nn.LSTM, layer: int) -> list[Tensor]:
    """Of all directions: weight_ih_KGI, weight_hh_KGH, bias_ih_KG, bias_hh_KG."""
    suffixes = [f"l{layer}", f"l{layer}_reverse"][: 2 if rnn.bidirectional else 1]
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [torch.stack([getattr(rnn, f"{kind}_{suffix}") for suffix in suffixes]) for kind in kinds]


def _gru(parameters: list[Tensor], inputs: Tensor, source_P: Tensor, packing: Packing) -> Tensor:
    weight_ih, weight_hh, bias_ih, bias_hh = parameters
    width = weight_hh.shape[2]
    bias_KG = bias_ih + functional.pad(bias_hh[:, : 2 * width], (0, width))
    projected = _projected(inputs, weight_ih, bias_KG)
    return GRUSteps.apply(projected, weight_hh, bias_hh[:, 2 * width :], source_P, packing)[0]


def _lstm(parameters: list[Tensor], inputs: Tensor, source_P: Tensor, packing: Packing) -> Tensor:
    weight_ih, weight_hh, bias_ih, bias_hh = (_sigmoids_first(tensor) for tensor in parameters)
    return LSTMSteps.apply(_projected(inputs, weight_ih, bias_ih + bias_hh), weight_hh, source_P, packing)[0]


def _sigmoids_first(tensor: Tensor) -> Tensor:
    """nn.LSTM's gates i, f, g, o along the second axis as i, f, o, g."""
    i, f, g, o = tensor.chunk(4, 1)
    return torch.cat([i, f, o, g], 1)


def _projected(inputs: Tensor, weight_KGI: Tensor, bias_KG: Tensor) -> Tensor:
    """Every input's projection for every direction, input by input: N x G."""
    projected = functional.linear(inputs, weight_KGI.flatten(0, 1), bias_KG.flatten())
    return projected.view(-1, weight_KGI.shape[1])


def summed(hidden_PH: Tensor, packing: Packing) -> Tensor:
    """The sum of each text's states, B x F."""
    return Sums.apply(hidden_PH, packing)


def final(hidden_PH: Tensor, packing: Packing) -> Tensor:
    """Each direction's state after its last step, B x F."""
    return Rows.apply(hidden_PH, packing.last_rows, packing.directions)
