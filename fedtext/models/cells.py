"""Recurrent layers with their own backward pass: the sums of nn.GRU and nn.LSTM in fewer and larger operations.

Each distinct word is projected once, however often it occurs. Then follow the steps (models/steps.py) and the pooling
of their outputs. ``torch.vmap`` of the loss of one client trains all clients of a stack together.

Legend: P packed rows, H hidden, G gates, N projected inputs, S token places, K directions, F = K x H features, B texts.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedtext.models import native, steps
from fedtext.models.batch import Words
from fedtext.models.functions import MappedFunction, merged
from fedtext.models.packing import Packing


class Rows(MappedFunction):
    """Selects the states in ``rows`` and concatenates those of a token's K directions: shape (M, F)."""

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


class Sums(MappedFunction):
    """Adds the states of each text: shape (B, F). Their order does not matter, so none is reversed."""

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


class Directions(MappedFunction):
    """Combines the parameters of a layer's directions: one node of the graph instead of ten.

    The arguments are the number of gates, 3 of a GRU and 4 of an LSTM, and weight_ih_GI, weight_hh_GH, bias_ih_G and
    bias_hh_G, each of all K directions. Outputs are weight_ih_KGI, weight_hh_KGH, the bias of the projections, bias_KG,
    and of a GRU the recurrent bias of n, bias_KH. An LSTM's gates, i, f, g, o in torch, become i, f, o, g.
    """

    @staticmethod
    def forward(gates: int, *parameters: Tensor) -> tuple[Tensor, ...]:
        count = len(parameters) // 4
        kinds = [list(parameters[start : start + count]) for start in range(0, len(parameters), count)]
        weights = [torch.stack(each, -3) for each in kinds[:2]]
        bias_KG, recurrent_KG = (torch.stack(each, -2) for each in kinds[2:])
        width = weights[1].shape[-1]
        if gates == 4:
            weights = [_reordered(weight, -2) for weight in weights]
            return *weights, _reordered(bias_KG.add_(recurrent_KG), -1)
        bias_KG[..., : 2 * width] += recurrent_KG[..., : 2 * width]
        return *weights, bias_KG, recurrent_KG[..., 2 * width :]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.gates = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weight_ih, weight_hh, bias_KG = grads[:3]
        if ctx.gates == 4:
            weight_ih, weight_hh, bias_KG = (
                _reordered(weight_ih, -2),
                _reordered(weight_hh, -2),
                _reordered(bias_KG, -1),
            )
            recurrent_KG = bias_KG
        else:
            recurrent_KG = torch.cat([bias_KG[..., : 2 * weight_hh.shape[-1]], grads[3]], -1)
        weights = [*weight_ih.unbind(-3), *weight_hh.unbind(-3)]
        return None, *weights, *bias_KG.unbind(-2), *recurrent_KG.unbind(-2)

    @staticmethod
    def vmap(info: Any, in_dims: Any, gates: int, *parameters: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        each = [
            parameter.expand(info.batch_size, *parameter.shape) if dim is None else parameter.movedim(dim, 0)
            for dim, parameter in zip(in_dims[1:], parameters, strict=True)
        ]
        outputs = Directions.apply(gates, *each)
        return outputs, (0,) * len(outputs)


def _reordered(tensor: Tensor, axis: int) -> Tensor:
    """Exchange the last two of an LSTM's four gates."""
    first, second, third, fourth = tensor.chunk(4, axis)
    return torch.cat([first, second, fourth, third], axis)


def recurrent(
    rnn: nn.GRU | nn.LSTM, table: Tensor | nn.Embedding, words: Words, dropout: nn.Dropout, means: bool = False
) -> Tensor:
    """Compute hidden_PH, the outputs of the last layer; or with ``means`` the mean of each text's, shape (B, F).

    Args:
        rnn: The layers, whose parameters are used.
        table: The embedding table; or an embedding that is called for each token, since it does not just read rows.
        words: The distinct words of the batch, and the packing.
        dropout: Dropout on the embedding output.
        means: Whether to return means; with engine ``native`` only.
    """
    packing = words.packing
    called = not isinstance(table, Tensor)
    if isinstance(table, Tensor):
        table_UD = table if words.rows_U is None else functional.embedding(words.rows_U, table)
    else:
        table_UD = table(words.word_S if words.rows_U is None else words.rows_U[words.word_S])
    hidden_PH = table_UD
    for layer in range(rnn.num_layers):
        if layer:
            inputs, source_P = Rows.apply(hidden_PH, packing.token_rows, packing.directions), packing.deep_source
        elif called:
            inputs, source_P = dropout(table_UD), packing.deep_source
        elif dropout.training and dropout.p:  # dropout is independent for each occurrence of a word
            inputs, source_P = dropout(functional.embedding(words.word_S, table_UD)), packing.deep_source
        else:
            inputs, source_P = table_UD, words.source_P
        pooled = means and layer == rnn.num_layers - 1
        hidden_PH = outputs(layer_parameters(rnn, layer), inputs, source_P, packing, pooled)
    return hidden_PH


def layer_parameters(rnn: nn.GRU | nn.LSTM, layer: int) -> list[Tensor]:
    """Return the arguments of ``Directions``: each kind of parameter of all directions."""
    suffixes = [f"l{layer}", f"l{layer}_reverse"][: 2 if rnn.bidirectional else 1]
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [getattr(rnn, f"{kind}_{suffix}") for kind in kinds for suffix in suffixes]


def outputs(parameters: list[Tensor], inputs: Tensor, source_P: Tensor, packing: Packing, means: bool) -> Tensor:
    """Compute a layer's hidden_PH, or with ``means`` the mean of each text's.

    Args:
        parameters: Its parameters, as ``Directions`` takes them, of a GRU or an LSTM.
        inputs: What is projected, shape (N, I).
        source_P: The projection of each row.
        packing: The packing.
        means: As in ``recurrent``.
    """
    if packing.engine == "native":
        return native.Layer.apply(inputs, source_P, packing, means, *parameters)[0]
    rows, width = parameters[len(parameters) // 4].shape[-2:]
    return (_gru if rows == 3 * width else _lstm)(parameters, inputs, source_P, packing)


def _gru(parameters: list[Tensor], inputs: Tensor, source_P: Tensor, packing: Packing) -> Tensor:
    weight_ih, weight_hh, bias_KG, bias_KH = Directions.apply(3, *parameters)
    projected = _projected(inputs, weight_ih, bias_KG)
    return steps.GRUSteps.apply(projected, weight_hh, bias_KH, source_P, packing)[0]


def _lstm(parameters: list[Tensor], inputs: Tensor, source_P: Tensor, packing: Packing) -> Tensor:
    weight_ih, weight_hh, bias_KG = Directions.apply(4, *parameters)
    projected = _projected(inputs, weight_ih, bias_KG)
    return steps.LSTMSteps.apply(projected, weight_hh, source_P, packing)[0]


def _projected(inputs: Tensor, weight_KGI: Tensor, bias_KG: Tensor) -> Tensor:
    """Project every input for every direction: shape (N, G), ordered by input."""
    projected = functional.linear(inputs, weight_KGI.flatten(0, 1), bias_KG.flatten())
    return projected.view(-1, weight_KGI.shape[1])


def summed(hidden_PH: Tensor, packing: Packing) -> Tensor:
    """Return the sum of each text's states, shape (B, F)."""
    return Sums.apply(hidden_PH, packing)


def final(hidden_PH: Tensor, packing: Packing) -> Tensor:
    """Return the state of each direction after its last step, shape (B, F)."""
    return Rows.apply(hidden_PH, packing.last_rows, packing.directions)
