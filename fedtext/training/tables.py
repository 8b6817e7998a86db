"""Embedding tables in training. A batch uses a few hundred rows of a table of thousands.

With SGD the other rows have no gradient, but momentum keeps moving them. These steps need not be made one by one: after
k steps without a gradient the velocity is m^k v, and the row has moved by -lr (m + m^2 + ... + m^k) v. A row is brought
up to date when a batch uses it, and all rows at the end. Adam has no such closed form, because of its epsilon: its
steps are made for whole tables.

Legend: C clients of a stack, N rows of all clients' tables, R rows of one, U words of a batch, D embedding.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedtext.models.packing import Ints
from fedtext.runtime.devices import to_device
from fedtext.training.stack import Stack


class Tables(Protocol):
    """The embedding tables of a stack's clients during training.

    Attributes:
        rows: The rows that ``begin`` returned last.
    """

    rows: Any

    def reset(self) -> None:
        """Reset all state, for new clients in the stack."""

    def begin(self, clients: range, words: Sequence[Ints]) -> Tensor:
        """Return the table for the loss, a leaf tensor unless it is frozen.

        It has all rows, or those of ``words`` of each client, with a leading axis if there are several clients.
        """

    def step(self, clients: range, grad: Tensor) -> None:
        """Make a step along the gradient with respect to the tensor that ``begin`` returned."""

    def finish(self) -> None:
        """Bring all rows up to date."""

    def state(self, client: int) -> dict[str, Tensor]:
        """Return the optimizer's state of a client's table, by kind."""


Advance = Callable[[range, list[Tensor], list[Tensor], dict[str, list[Tensor]], list[Tensor]], None]


class FrozenTable:
    """Tables that are not trained. With ``cut`` the loss receives the batch's rows only."""

    def __init__(self, stack: Stack, cut: bool) -> None:
        self.stack, self.cut, self.rows = stack, cut, None

    def reset(self) -> None:
        pass

    def begin(self, clients: range, words: Sequence[Ints]) -> Tensor:
        if not self.cut:
            return self.stack.tables(self.stack.table_ND)[clients.start]
        return _shaped(self.stack.table_ND.index_select(0, batch_rows(self.stack, clients, words)), clients)

    def step(self, clients: range, grad: Tensor) -> None:
        raise AssertionError("it has no gradient")

    def finish(self) -> None:
        pass

    def state(self, client: int) -> dict[str, Tensor]:
        return {}


class StatefulTables:
    """Base of tables whose optimizer keeps state of each row, and moves rows without a gradient as well.

    Args:
        stack: The clients.
        kinds: Kinds of state.

    Attributes:
        moments: The state of all rows by kind, each of the shape of ``stack.table_ND``.
        steps: Number of steps of each client (Adam).
    """

    def __init__(self, stack: Stack, kinds: Sequence[str]) -> None:
        self.stack, self.kinds = stack, kinds
        self.steps = [torch.zeros((), device=stack.workspace.device) for _ in range(stack.clients)]

    def reset(self) -> None:
        take, shape = self.stack.workspace.take, self.stack.table_ND.shape
        self.moments = {kind: take(f"table/{kind}", *shape).zero_() for kind in self.kinds}
        for step in self.steps:
            step.zero_()

    def finish(self) -> None:
        pass

    def state(self, client: int) -> dict[str, Tensor]:
        kept = {kind: self.stack.tables(tensor)[client] for kind, tensor in self.moments.items()}
        return kept | {"step": self.steps[client]} if "exp_avg" in kept else kept  # SGD counts nothing


class WholeTable(StatefulTables):
    """Tables of which the loss receives all rows."""

    def __init__(self, stack: Stack, kinds: Sequence[str], advance: Advance) -> None:
        super().__init__(stack, kinds)
        self.advance = advance

    def reset(self) -> None:
        super().reset()
        self.tables = self.stack.tables(self.stack.table_ND)
        self.memory = {kind: self.stack.tables(tensor) for kind, tensor in self.moments.items()}

    def begin(self, clients: range, words: Sequence[Ints]) -> Tensor:
        assert len(clients) == 1, "whole tables differ in size: their clients are trained one by one"
        self.rows: Any = slice(*self.stack.starts[clients.start : clients.start + 2])
        return self.tables[clients.start].detach().requires_grad_()

    def step(self, clients: range, grad: Tensor) -> None:
        self._advance(clients, [grad.contiguous()])

    def _advance(self, clients: range, grads: list[Tensor]) -> None:
        chosen = slice(clients.start, clients.stop)
        memory = {kind: tables[chosen] for kind, tables in self.memory.items()}
        self.advance(clients, self.tables[chosen], grads, memory, self.steps[chosen])


class CutTables(WholeTable):
    """Tables of which the loss receives the batch's rows; a step is made for all rows."""

    def reset(self) -> None:
        super().reset()
        self.grad_ND = self.stack.workspace.take("table/gradient", *self.stack.table_ND.shape).zero_()

    def begin(self, clients: range, words: Sequence[Ints]) -> Tensor:
        self.rows = batch_rows(self.stack, clients, words)
        return leaf(self.stack.table_ND.index_select(0, self.rows), clients)

    def step(self, clients: range, grad: Tensor) -> None:
        self.grad_ND.index_copy_(0, self.rows, grad.reshape(len(self.rows), -1))
        self._advance(clients, self.stack.tables(self.grad_ND)[clients.start : clients.stop])
        self.grad_ND.index_fill_(0, self.rows, 0)


class TouchedRows:
    """Tables trained with SGD, of which the loss receives the batch's rows. Steps of a row are made at its next use."""

    def __init__(self, stack: Stack, lr: float, momentum: float) -> None:
        self.stack, self.lr, self.momentum = stack, lr, momentum
        tiny = math.log(torch.finfo(stack.table_ND.dtype).smallest_normal)
        self.dead = 1 + (int(tiny / math.log(momentum)) if momentum else 0)  # from here on m^k is 0
        self._look_ahead(0)

    def _look_ahead(self, steps: int) -> None:
        """Compute m^k, and lr (m + ... + m^k), for k up to ``steps`` missed steps and one, or to where m^k is 0."""
        k = np.arange(min(steps, self.dead) + 2)
        powers = np.power(self.momentum, k) * (k < self.dead)
        moves = self.lr * np.cumsum(powers * (k > 0))
        table_ND = self.stack.table_ND
        self.decay_K1, self.move_K1 = (to_device(x[:, None], table_ND.device).to(table_ND) for x in (powers, moves))

    def reset(self) -> None:
        take, table_ND = self.stack.workspace.take, self.stack.table_ND
        self.velocity_ND = take("table/momentum_buffer", *table_ND.shape).zero_()
        self.made_N = take("table/made", len(table_ND), dtype=torch.int64).zero_()
        self.steps_C = np.zeros(self.stack.clients, np.int64)

    def begin(self, clients: range, words: Sequence[Ints]) -> Tensor:
        self.rows = batch_rows(self.stack, clients, words)
        self._look_ahead_of(clients)
        counts = np.repeat(self.steps_C[clients.start : clients.stop], len(self.rows) // len(clients))
        self.counts = to_device(counts, self.rows.device)
        self.missed = self._missed(self.rows, self.counts)
        self.fetched = self._fetch(self.rows, self.missed)
        return leaf(self.fetched, clients)

    def _look_ahead_of(self, clients: range) -> None:
        """Look ahead as far as rows of these clients may have missed steps by the end of this one."""
        most = int(max(self.steps_C[clients.start : clients.stop])) + 1
        if min(most, self.dead) > len(self.decay_K1) - 2:
            self._look_ahead(2 * most)

    def _missed(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Return the number of steps, of ``steps``, since each row was last updated; at most what is looked ahead."""
        return (steps - self.made_N.index_select(0, rows)).clamp_(0, len(self.decay_K1) - 2)

    def _fetch(self, rows: Tensor, missed: Tensor) -> Tensor:
        """Return a copy of these rows, moved by the steps that they missed."""
        self.velocity = self.velocity_ND.index_select(0, rows)
        fetched = self.stack.table_ND.index_select(0, rows)
        return fetched.addcmul_(self.velocity, self.move_K1.index_select(0, missed), value=-1)

    def step(self, clients: range, grad: Tensor) -> None:
        decay = self.decay_K1.index_select(0, self.missed + 1)
        velocity = torch.addcmul(grad.reshape(len(self.rows), -1), self.velocity, decay)
        self.velocity_ND.index_copy_(0, self.rows, velocity)
        self.stack.table_ND.index_copy_(0, self.rows, self.fetched.add_(velocity, alpha=-self.lr))
        self.made_N.index_copy_(0, self.rows, self.counts + 1)
        self.steps_C[clients.start : clients.stop] += 1

    def finish(self) -> None:
        counts = [np.full(len(table), steps) for table, steps in zip(self._tables(), self.steps_C, strict=True)]
        steps_N = to_device(np.concatenate(counts), self.made_N.device)
        behind = torch.nonzero(self.made_N[: len(steps_N)] < steps_N).squeeze(1)
        steps = steps_N.index_select(0, behind)
        missed = self._missed(behind, steps)
        self.stack.table_ND.index_copy_(0, behind, self._fetch(behind, missed))
        velocity = self.velocity_ND.index_select(0, behind).mul_(self.decay_K1.index_select(0, missed))
        self.velocity_ND.index_copy_(0, behind, velocity)
        self.made_N.index_copy_(0, behind, steps)

    def _tables(self) -> list[Tensor]:
        return self.stack.tables(self.stack.table_ND)

    def state(self, client: int) -> dict[str, Tensor]:
        return {"momentum_buffer": self.stack.tables(self.velocity_ND)[client]}


def batch_rows(stack: Stack, clients: range, words: Sequence[Ints]) -> Tensor:
    """Return the rows of words in ``stack.table_ND``, client by client, padded to equal numbers.

    Args:
        stack: The clients' parameters.
        clients: Places of the clients in the stack.
        words: Rows of each client's words in its own table.
    """
    rows_CU = np.empty((len(words), max(map(len, words))), np.int64)
    for rows_U, client, words_U in zip(rows_CU, clients, words, strict=True):
        rows_U[: len(words_U)] = stack.starts[client] + words_U
        rows_U[len(words_U) :] = stack.starts[-1] + client
    return to_device(rows_CU.reshape(-1), stack.table_ND.device)


def _shaped(rows_MD: Tensor, clients: range) -> Tensor:
    return rows_MD if len(clients) == 1 else rows_MD.view(len(clients), -1, rows_MD.shape[1])


def leaf(rows_MD: Tensor, clients: range) -> Tensor:
    """Return rows of tables as the tensor for which the loss has a gradient."""
    return _shaped(rows_MD, clients).detach().requires_grad_()
