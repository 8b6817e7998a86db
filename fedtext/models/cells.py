"""Recurrent layers with a backward pass of our own: the sums of nn.GRU and nn.LSTM in fewer and larger operations.

Texts are packed: sorted by length, step by step, so that step t holds only the texts that have a t-th token. The
reverse direction reads every text from its own end, so both directions are active on the same texts at every step and
share one batched product. What does not depend on the step before is computed for all steps at once: input
projections before the loop, weight gradients after it. One word is projected once, however often it occurs.

Legend: B texts, S packed rows (tokens of all texts), K directions, H hidden, G gates (3H of a
GRU, 4H of an LSTM), D inputs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


@dataclass(frozen=True)
class Packing:
    """Where the tokens of a batch lie when packed. Rows of step t are the ``sizes[t]`` longest texts, in one order."""

    sizes: list[int]
    text_S: Tensor  # the text of each row, in the batch's own order
    step_S: Tensor
    reversed_S: Tensor  # the row of the same text counted from its end: an involution
    last_B: Tensor  # the row of each text's last step
    before: Tensor  # rows of the step before, for all rows after the first step

    @staticmethod
    def of(lengths_B: Tensor) -> "Packing":
        """The packing of texts of these lengths (all at least 1)."""
        sorted_B, order_B = torch.sort(lengths_B, descending=True, stable=True)
        steps = int(sorted_B[0])
        active_TB = torch.arange(steps, device=lengths_B.device)[:, None] < sorted_B
        step_S, place_S = active_TB.nonzero(as_tuple=True)
        sizes_T = active_TB.sum(1)
        starts_T = torch.cumsum(sizes_T, 0) - sizes_T
        last_B = torch.empty_like(order_B)
        last_B[order_B] = starts_T[sorted_B - 1] + torch.arange(len(sorted_B), device=lengths_B.device)
        return Packing(
            sizes_T.tolist(),
            order_B[place_S],
            step_S,
            starts_T[sorted_B[place_S] - 1 - step_S] + place_S,
            last_B,
            starts_T[step_S[sizes_T[0] :] - 1] + place_S[sizes_T[0] :],
        )


class GRULayer(torch.autograd.Function):
    """All steps of one GRU layer, K directions together: hidden_KSH from the input projections gates_KSG (G = 3H, in
    nn.GRU's order r, z, n)."""

    @staticmethod
    def forward(ctx, gates_KSG: Tensor, weight_KGH: Tensor, bias_KG: Tensor, packing: Packing) -> Tensor:  # type: ignore[no-untyped-def]
        directions, rows, gates = gates_KSG.shape
        width, sizes = gates // 3, packing.sizes
        gates_KSG = gates_KSG.clone()  # r, z and n, computed in place
        product_KSG = bias_KG[:, None].expand_as(gates_KSG).clone(memory_format=torch.contiguous_format)
        hidden_KSH = gates_KSG.new_empty(directions, rows, width)
        weight_KHG = weight_KGH.transpose(1, 2).contiguous()
        before = gates_KSG.new_zeros(directions, sizes[0], width)
        # All steps' views are cut at once: one by one, cutting them would cost as much as computing on them.
        for size, product, recurrent, rz, add, r, z, n, hidden in zip(
            sizes,
            product_KSG.split(sizes, 1),
            product_KSG[..., 2 * width :].split(sizes, 1),
            gates_KSG[..., : 2 * width].split(sizes, 1),
            product_KSG[..., : 2 * width].split(sizes, 1),
            gates_KSG[..., :width].split(sizes, 1),
            gates_KSG[..., width : 2 * width].split(sizes, 1),
            gates_KSG[..., 2 * width :].split(sizes, 1),
            hidden_KSH.split(sizes, 1),
            strict=True,
        ):
            product.baddbmm_(before[:, :size], weight_KHG)
            rz.add_(add).sigmoid_()
            n.addcmul_(r, recurrent).tanh_()
            before = torch.lerp(n, before[:, :size], z, out=hidden)
        ctx.packing = packing
        ctx.save_for_backward(weight_KGH, hidden_KSH, gates_KSG, product_KSG)
        return hidden_KSH

    @staticmethod
    @once_differentiable  # the reference engine is there for second derivatives
    def backward(ctx, grad_KSH: Tensor):  # type: ignore[no-untyped-def]
        weight_KGH, hidden_KSH, gates_KSG, product_KSG = ctx.saved_tensors
        packing: Packing = ctx.packing
        sizes, width = packing.sizes, hidden_KSH.shape[2]
        r, z, n = gates_KSG.split(width, 2)
        before_KSH = _before(hidden_KSH, packing)
        # d(gate input) = d(hidden) * a factor known beforehand, gate by gate; for n by way of r, which is how the
        # recurrent product reaches it
        slope_n = (1 - z) * (1 - n * n)
        recurrent = product_KSG[..., 2 * width :]
        factor_KS3H = torch.empty_like(gates_KSG).unflatten(2, (3, width))
        torch.mul(slope_n, r, out=factor_KS3H[:, :, 2])
        torch.mul(factor_KS3H[:, :, 2], recurrent, out=factor_KS3H[:, :, 0]).mul_(1 - r)
        torch.sub(before_KSH, n, out=factor_KS3H[:, :, 1]).mul_(z).mul_(1 - z)
        grad = grad_KSH.clone()
        grad_gates_KS3H = torch.empty_like(factor_KS3H)
        steps = zip(
            grad.split(sizes, 1),
            grad[:, :, None].split(sizes, 1),
            factor_KS3H.split(sizes, 1),
            grad_gates_KS3H.split(sizes, 1),
            grad_gates_KS3H.flatten(2).split(sizes, 1),
            z.split(sizes, 1),
            strict=True,
        )
        later = None
        for dh, dh_K1H, factor, dg, dg_flat, kept in reversed(list(steps)):
            if later is not None:
                carried = dh[:, : later[0].shape[1]]
                carried.addcmul_(later[0], later[1]).baddbmm_(later[2], weight_KGH)
            torch.mul(dh_K1H, factor, out=dg)
            later = dh, kept, dg_flat
        grad_gates_KSG = grad_gates_KS3H.flatten(2)
        grad_weight_KGH = torch.bmm(grad_gates_KSG.transpose(1, 2), before_KSH)
        grad_bias_KG = grad_gates_KSG.sum(1)
        grad_gates_KS3H[:, :, 2] = grad * slope_n  # towards the input n is reached directly, not by way of r
        return grad_gates_KSG, grad_weight_KGH, grad_bias_KG, None


class LSTMLayer(torch.autograd.Function):
    """All steps of one LSTM layer, K directions together: hidden_KSH from the input projections gates_KSG (G = 4H, in
    nn.LSTM's order i, f, g, o)."""

    @staticmethod
    def forward(ctx, gates_KSG: Tensor, weight_KGH: Tensor, bias_KG: Tensor, packing: Packing) -> Tensor:  # type: ignore[no-untyped-def]
        directions, rows, gates = gates_KSG.shape
        width = gates // 4
        gates_KS4H = gates_KSG.clone().unflatten(2, (4, width))  # computed in place
        hidden_KSH = gates_KSG.new_empty(directions, rows, width)
        cell_KSH, squashed_KSH = torch.empty_like(hidden_KSH), torch.empty_like(hidden_KSH)  # c and tanh(c)
        weight_KHG, bias_K1G = weight_KGH.transpose(1, 2).contiguous(), bias_KG[:, None]
        before = gates_KSG.new_zeros(directions, packing.sizes[0], width)
        cell, start = before, 0
        for size in packing.sizes:
            end = start + size
            step_KB4H = gates_KS4H[:, start:end]
            step_KB4H += torch.baddbmm(bias_K1G, before[:, :size], weight_KHG).unflatten(2, (4, width))
            step_KB4H[:, :, :2].sigmoid_()
            step_KB4H[:, :, 2].tanh_()
            step_KB4H[:, :, 3].sigmoid_()
            i, f, g, o = step_KB4H.unbind(2)
            cell = torch.mul(f, cell[:, :size], out=cell_KSH[:, start:end]).addcmul_(i, g)
            squashed = torch.tanh(cell, out=squashed_KSH[:, start:end])
            before = torch.mul(o, squashed, out=hidden_KSH[:, start:end])
            start = end
        ctx.packing = packing
        ctx.save_for_backward(weight_KGH, hidden_KSH, gates_KS4H, cell_KSH, squashed_KSH)
        return hidden_KSH

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_KSH: Tensor):  # type: ignore[no-untyped-def]
        weight_KGH, hidden_KSH, gates_KS4H, cell_KSH, squashed = ctx.saved_tensors
        packing: Packing = ctx.packing
        i, f, g, o = gates_KS4H.unbind(2)
        before_KSH, cell_before = _before(hidden_KSH, packing), _before(cell_KSH, packing)
        # d(gate input) = d(cell) * a factor known beforehand for i, f and g, and d(hidden) * one for o
        factor_KS3H = torch.stack([g * i * (1 - i), cell_before * f * (1 - f), i * (1 - g * g)], dim=2)
        factor_o, slope = squashed * o * (1 - o), o * (1 - squashed * squashed)
        grad, grad_cell = grad_KSH.clone(), torch.zeros_like(hidden_KSH)
        grad_gates_KS4H = torch.empty_like(gates_KS4H)
        end = hidden_KSH.shape[1]
        for step in range(len(packing.sizes) - 1, -1, -1):
            size = packing.sizes[step]
            start = end - size
            dh = grad[:, start:end]
            dc = grad_cell[:, start:end].addcmul_(dh, slope[:, start:end])
            dg = grad_gates_KS4H[:, start:end]
            torch.mul(dc[:, :, None], factor_KS3H[:, start:end], out=dg[:, :, :3])
            torch.mul(dh, factor_o[:, start:end], out=dg[:, :, 3])
            if step:
                earlier = start - packing.sizes[step - 1]
                torch.mul(dc, f[:, start:end], out=grad_cell[:, earlier : earlier + size])
                grad[:, earlier : earlier + size].baddbmm_(dg.flatten(2), weight_KGH)
            end = start
        grad_gates_KSG = grad_gates_KS4H.flatten(2)
        return grad_gates_KSG, torch.bmm(grad_gates_KSG.transpose(1, 2), before_KSH), grad_gates_KSG.sum(1), None


def _before(state_KSH: Tensor, packing: Packing) -> Tensor:
    """The state one step earlier, row by row; zero before the first step."""
    before_KSH = torch.zeros_like(state_KSH)
    torch.index_select(state_KSH, 1, packing.before, out=before_KSH[:, packing.sizes[0] :])
    return before_KSH


def recurrent(
    rnn: nn.GRU | nn.LSTM, table_RD: Tensor, tokens_BT: Tensor, lengths_B: Tensor, dropout: nn.Dropout
) -> tuple[Tensor, Packing]:
    """The outputs hidden_KSH of ``rnn``'s last layer over the embedded tokens, each direction in its own row order."""
    packing = Packing.of(lengths_B.to(tokens_BT.device))
    tokens_S = tokens_BT[packing.text_S, packing.step_S]
    directions = 2 if rnn.bidirectional else 1
    layer_of = GRULayer if isinstance(rnn, nn.GRU) else LSTMLayer
    hidden_KSH = table_RD
    for layer in range(rnn.num_layers):
        names = [f"l{layer}" + suffix for suffix in ("", "_reverse")[:directions]]
        weight_ih, weight_hh, bias_ih, bias_hh = (
            [getattr(rnn, f"{kind}_{name}") for name in names]
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        weight_KGxI, bias_KG = torch.cat(weight_ih), torch.cat(bias_ih)
        if layer == 0 and not (dropout.training and dropout.p):
            words_U, word_S = torch.unique(tokens_S, return_inverse=True)
            projected = functional.linear(functional.embedding(words_U, table_RD), weight_KGxI, bias_KG)
            place_S = word_S
        else:  # dropout strikes every occurrence of a word by itself
            inputs_SD = dropout(functional.embedding(tokens_S, table_RD)) if not layer else aligned(hidden_KSH, packing)
            projected = functional.linear(inputs_SD, weight_KGxI, bias_KG)
            place_S = torch.arange(len(tokens_S), device=tokens_S.device)
        # Each row's projection, the reverse direction's in its own order, in one gather.
        places_S = [place_S, place_S.index_select(0, packing.reversed_S)][:directions]
        index_KS = torch.stack([directions * place_S + k for k, place_S in enumerate(places_S)])
        gates_KSG = functional.embedding(index_KS, projected.reshape(directions * len(projected), -1))
        hidden_KSH = layer_of.apply(gates_KSG, torch.stack(weight_hh), torch.stack(bias_hh), packing)
    return hidden_KSH, packing


def aligned(hidden_KSH: Tensor, packing: Packing) -> Tensor:
    """Both directions' outputs side by side, hidden_SF: the reverse one turned back to the order of the text."""
    if len(hidden_KSH) == 1:
        return hidden_KSH[0]
    return torch.cat([hidden_KSH[0], hidden_KSH[1].index_select(0, packing.reversed_S)], dim=1)


def summed(hidden_KSH: Tensor, packing: Packing, texts: int) -> Tensor:
    """The sum over each text's steps, B x F. The order of the steps does not matter, so nothing is turned back."""
    rows_SF = hidden_KSH.transpose(0, 1).flatten(1)
    return rows_SF.new_zeros(texts, rows_SF.shape[1]).index_add(0, packing.text_S, rows_SF)


def final(hidden_KSH: Tensor, packing: Packing) -> Tensor:
    """Each direction's state after its last step, B x F."""
    return hidden_KSH[:, packing.last_B].transpose(0, 1).flatten(1)
