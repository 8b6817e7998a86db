"""Recurrent layers with a backward pass of our own: the sums of nn.GRU and nn.LSTM in fewer and larger operations.

What does not depend on the step before is computed for all steps at once: input projections before the loop, weight
gradients after it. One word is projected once, however often it occurs. Both directions, and all clients of a stack,
share one batched product a step (models/packing.py). Under ``torch.vmap`` these functions take the clients' mapped
parameters as more lanes of the same loop, which is all it takes to train a stack by the loss of a single client.

Rows go from function to function in the packing's own order, which only the functions of this file understand.

Legend: P packed rows, L lanes, H hidden, G gates (3H of a GRU, 4H of an LSTM), N projected inputs, S token places,
K directions, F = K x H features, B texts.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fedtext.models.batch import Words
from fedtext.models.packing import Packing


class Steps(Function):
    """What the two kinds of layer have in common. ``apply`` takes the projected inputs, the recurrent weights (and what
    else is drawn from the parameters), then the input each row takes and the packing; the first output is hidden_PH.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, source_P, packing = inputs
        ctx.packing, ctx.inputs = packing, len(tensors[0])
        ctx.save_for_backward(tensors[1], source_P, *output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @classmethod
    def mapped(cls, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, ...]:
        """All clients in one call: the rule for ``torch.vmap``."""
        *tensors, source_P, packing = arguments
        merged = [_merged(info.batch_size, dim, tensor) for dim, tensor in zip(in_dims, tensors, strict=False)]
        outputs = cls.apply(*merged, source_P, packing)
        return tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs), (0,) * len(outputs)


def _merged(clients: int, dim: int | None, tensor: Tensor) -> Tensor:
    """A mapped tensor with its client axis folded into the first: C x N x ... as CN x ..."""
    stacked = tensor.expand(clients, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return stacked.flatten(0, 1)


class GRUSteps(Steps):
    """All steps of a GRU layer, with gates in nn.GRU's order r, z, n. ``bias_LH`` is the recurrent bias of n, which the
    reset gate scales; the other recurrent biases have been added to the projections."""

    @staticmethod
    def forward(
        inputs_NG: Tensor, weight_LGH: Tensor, bias_LH: Tensor, source_P: Tensor, packing: Packing
    ) -> tuple[Tensor, ...]:
        width = weight_LGH.shape[2]
        gates_PG = inputs_NG.index_select(0, source_P)  # r, z and the recurrent part of n, computed in place
        new_PH = gates_PG[:, 2 * width :].clone(memory_format=torch.contiguous_format)  # n
        for block in packing.blocks(gates_PG[:, 2 * width :]):
            block.copy_(bias_LH[:, None])
        hidden_PH = torch.empty_like(new_PH)
        weight_LHG = weight_LGH.transpose(1, 2).contiguous()
        before = hidden_PH.new_zeros(packing.lanes, packing.sizes_T[0], width)
        last = packing.sizes_T[0]
        for size, gates, rz, r, z, recurrent, new, hidden in zip(
            packing.sizes_T,
            packing.steps(gates_PG),
            packing.steps(gates_PG[:, : 2 * width]),
            packing.steps(gates_PG[:, :width]),
            packing.steps(gates_PG[:, width : 2 * width]),
            packing.steps(gates_PG[:, 2 * width :]),
            packing.steps(new_PH),
            packing.steps(hidden_PH),
            strict=True,
        ):
            if size != last:
                before, last = before[:, :size], size
            gates.baddbmm_(before, weight_LHG)
            rz.sigmoid_()
            new.addcmul_(r, recurrent).tanh_()
            before = torch.lerp(new, before, z, out=hidden)
        return hidden_PH, gates_PG, new_PH

    @staticmethod
    @once_differentiable  # the reference engine is there for second derivatives
    def backward(ctx: Any, grad_PH: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        weight_LGH, source_P, hidden_PH, gates_PG, n = ctx.saved_tensors
        packing: Packing = ctx.packing
        width = hidden_PH.shape[1]
        r, z, recurrent = gates_PG.split(width, 1)
        before_PH = _before(hidden_PH, packing)
        # d(gate input) = d(hidden) * a factor known beforehand, gate by gate; for n by way of r, which is how the
        # recurrent product reaches it
        slope_n = _one_minus_square(n)
        slope_n.addcmul_(slope_n, z, value=-1)
        rz = gates_PG[:, : 2 * width]
        factor_P3H = torch.empty_like(gates_PG).unflatten(1, (3, width))
        torch.addcmul(rz, rz, rz, value=-1, out=factor_P3H[:, :2].flatten(1))
        factor_P3H[:, 0].mul_(recurrent).mul_(slope_n)
        factor_P3H[:, 1].mul_(before_PH - n)
        torch.mul(slope_n, r, out=factor_P3H[:, 2])
        grad_PH = grad_PH.clone()
        grad_P3H = torch.empty_like(factor_P3H)
        flat = packing.steps(grad_P3H.flatten(1))
        later: tuple[Tensor, Tensor, Tensor] | None = None
        last = packing.sizes_T[-1]
        for size, dh, dh_1, factor, dg, dg_flat, kept in zip(
            reversed(packing.sizes_T),
            reversed(packing.steps(grad_PH)),
            reversed(packing.steps(grad_PH[:, None])),
            reversed(packing.steps(factor_P3H)),
            reversed(packing.steps(grad_P3H)),
            reversed(flat),
            reversed(packing.steps(z)),
            strict=True,
        ):
            if later is not None:
                carried = dh if size == last else dh[:, :last]
                carried.addcmul_(later[0], later[1]).baddbmm_(later[2], weight_LGH)
            torch.mul(dh_1, factor, out=dg)
            later, last = (dh, kept, dg_flat), size
        grad_PG = grad_P3H.flatten(1)
        grad_weight_LGH, grad_LSG = _weight_gradient(grad_PG, before_PH, packing)
        grad_bias_LH = grad_LSG[..., 2 * width :].sum(1)
        torch.mul(grad_PH, slope_n, out=grad_P3H[:, 2])  # towards the input n is reached directly, not by way of r
        grad_inputs_NG = grad_PG.new_zeros(ctx.inputs, 3 * width).index_add_(0, source_P, grad_PG)
        return grad_inputs_NG, grad_weight_LGH, grad_bias_LH, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return GRUSteps.mapped(info, in_dims, *arguments)


class LSTMSteps(Steps):
    """All steps of an LSTM layer, with gates in the order i, f, o, g: the three sigmoids side by side. All biases have
    been added to the projections."""

    @staticmethod
    def forward(inputs_NG: Tensor, weight_LGH: Tensor, source_P: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        width = weight_LGH.shape[2]
        gates_PG = inputs_NG.index_select(0, source_P)  # computed in place
        hidden_PH = gates_PG.new_empty(len(gates_PG), width)
        cell_PH, squashed_PH = torch.empty_like(hidden_PH), torch.empty_like(hidden_PH)  # c and tanh(c)
        weight_LHG = weight_LGH.transpose(1, 2).contiguous()
        before = cell = hidden_PH.new_zeros(packing.lanes, packing.sizes_T[0], width)
        last = packing.sizes_T[0]
        for size, gates, ifo, i, f, o, g, c, squashed, hidden in zip(
            packing.sizes_T,
            packing.steps(gates_PG),
            packing.steps(gates_PG[:, : 3 * width]),
            *[packing.steps(gate) for gate in gates_PG.split(width, 1)],
            packing.steps(cell_PH),
            packing.steps(squashed_PH),
            packing.steps(hidden_PH),
            strict=True,
        ):
            if size != last:
                before, cell, last = before[:, :size], cell[:, :size], size
            gates.baddbmm_(before, weight_LHG)
            ifo.sigmoid_()
            g.tanh_()
            cell = torch.mul(f, cell, out=c).addcmul_(i, g)
            before = torch.mul(o, torch.tanh(cell, out=squashed), out=hidden)
        return hidden_PH, gates_PG, cell_PH, squashed_PH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_PH: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        weight_LGH, source_P, hidden_PH, gates_PG, cell_PH, squashed = ctx.saved_tensors
        packing: Packing = ctx.packing
        width = hidden_PH.shape[1]
        i, f, o, g = gates_PG.split(width, 1)
        # d(gate input) = d(cell) * a factor known beforehand for i, f and g, and d(hidden) * one for o
        factor_P4H = torch.empty_like(gates_PG).unflatten(1, (4, width))
        ifo = gates_PG[:, : 3 * width]
        torch.addcmul(ifo, ifo, ifo, value=-1, out=factor_P4H[:, :3].flatten(1))
        factor_P4H[:, 0].mul_(g)
        factor_P4H[:, 1].mul_(_before(cell_PH, packing))
        factor_P4H[:, 2].mul_(squashed)
        torch.addcmul(i, i * g, g, value=-1, out=factor_P4H[:, 3])
        slope = _one_minus_square(squashed).mul_(o)
        grad_PH, grad_cell_PH = grad_PH.clone(), torch.zeros_like(hidden_PH)
        grad_P4H = torch.empty_like(factor_P4H)
        later: tuple[Tensor, Tensor, Tensor] | None = None
        last = packing.sizes_T[-1]
        for size, dh, dc, dc_1, dslope, factor, factor_o, dg, dg_o, dg_flat, kept in zip(
            reversed(packing.sizes_T),
            reversed(packing.steps(grad_PH)),
            reversed(packing.steps(grad_cell_PH)),
            reversed(packing.steps(grad_cell_PH[:, None])),
            reversed(packing.steps(slope)),
            reversed(packing.steps(factor_P4H)),
            reversed(packing.steps(factor_P4H[:, 2])),
            reversed(packing.steps(grad_P4H)),
            reversed(packing.steps(grad_P4H[:, 2])),
            reversed(packing.steps(grad_P4H.flatten(1))),
            reversed(packing.steps(f)),
            strict=True,
        ):
            if later is not None:
                whole = size == last
                (dh if whole else dh[:, :last]).baddbmm_(later[2], weight_LGH)
                torch.mul(later[0], later[1], out=dc if whole else dc[:, :last])
            dc.addcmul_(dh, dslope)
            torch.mul(dc_1, factor, out=dg)
            torch.mul(dh, factor_o, out=dg_o)
            later, last = (dc, kept, dg_flat), size
        grad_PG = grad_P4H.flatten(1)
        grad_weight_LGH, _ = _weight_gradient(grad_PG, _before(hidden_PH, packing), packing)
        grad_inputs_NG = grad_PG.new_zeros(ctx.inputs, 4 * width).index_add_(0, source_P, grad_PG)
        return grad_inputs_NG, grad_weight_LGH, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return LSTMSteps.mapped(info, in_dims, *arguments)


def _one_minus_square(value: Tensor) -> Tensor:
    """The slope of tanh where it has this value."""
    return torch.addcmul(value.new_ones(()), value, value, value=-1)


def _before(state_PH: Tensor, packing: Packing) -> Tensor:
    """The state one step earlier, row by row; zero before the first step."""
    first = packing.lanes * packing.sizes_T[0]
    before_PH = torch.empty_like(state_PH)
    before_PH[:first].zero_()
    torch.index_select(state_PH, 0, packing.before, out=before_PH[first:])
    return before_PH


def _weight_gradient(grad_PG: Tensor, before_PH: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """The recurrent weights' gradient, in one product over all steps of each lane, and grad_PG in lane order."""
    rows, lanes = packing.by_lane, (packing.lanes, -1)
    grad_LSG = grad_PG.index_select(0, rows).unflatten(0, lanes)
    before_LSH = before_PH.index_select(0, rows).unflatten(0, lanes)
    return torch.bmm(grad_LSG.transpose(1, 2), before_LSH), grad_LSG


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
        merged = _merged(info.batch_size, in_dims[0], hidden)
        return Rows.apply(merged, rows, directions).unflatten(0, (info.batch_size, -1)), 0


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
        merged = _merged(info.batch_size, in_dims[0], hidden)
        return Sums.apply(merged, packing).unflatten(0, (info.batch_size, -1)), 0


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
