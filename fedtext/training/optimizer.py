"""The clients' optimizer, on the flat memory of a stack.

Legend: C clients of a stack, P parameters besides the table, U words of a batch, D embedding.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fedtext.layout import is_table
from fedtext.methods.state import Tensors
from fedtext.models.packing import Ints
from fedtext.training.config import SGD, Adam, decays
from fedtext.training.native_rows import NativeAdamRows, NativeRows
from fedtext.training.phases import still_columns
from fedtext.training.stack import Stack
from fedtext.training.steps import advance, kinds
from fedtext.training.tables import CutTables, FrozenTable, Tables, TouchedRows, WholeTable


class LocalOptimizer:
    """Makes the steps of the clients of a stack, each as if it were alone.

    Args:
        config: The optimizer.
        stack: The clients' parameters.
        lr: The learning rate. It replaces that of ``config``, whose rate of the embedding is scaled accordingly.
        cut: Whether the loss uses only the rows of the batch's words, and receives only these.
        moving: Names of the parameters that are trained; None: all. Of several tables some may be.
        task_of: The task whose batches alone train a parameter (``Method.task_of``). A step on a batch of another task
            changes neither the parameter nor its state, and does not count as a step of Adam.
        native: Whether the engine is ``native``.
        scales: The factors of the learning rates of parameters besides the tables, by name; 1 for others.
        bounds: The least and the largest value of parameters, by name (``Method.bounds``).

    Attributes:
        only: Which rows of the tables move, as 0 or 1 of shape (N, 1); None: all.
    """

    only: Tensor | None = None
    _table_grad: Tensor | None = None

    def __init__(
        self,
        config: SGD | Adam,
        stack: Stack,
        lr: float,
        cut: bool = False,
        moving: Collection[str] | None = None,
        task_of: Callable[[str], int | None] = lambda parameter: None,
        native: bool = False,
        scales: Mapping[str, float] = MappingProxyType({}),
        bounds: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    ) -> None:
        self.config, self.stack, self.lr = config, stack, lr
        self.tasks = {name: task_of(name) for name in stack.layout.shapes if moving is None or name in moving}
        self.apart = any(task is not None for task in self.tasks.values())
        self.scales = {name: scales.get(name, 1.0) for name in self.tasks}
        self.bounds = {name: between for name, between in bounds.items() if name in self.tasks}
        self.embedding_lr = embedding_lr = lr if config.embedding_lr is None else config.embedding_lr * lr / config.lr
        take, shape = stack.workspace.take, stack.flat_CP.shape
        self.grad_CP = take("gradient", *shape)
        self.memory = {kind: take(kind, *shape) for kind in kinds(config)}
        self.steps = [torch.zeros((), device=stack.workspace.device) for _ in range(stack.clients)]
        self.frozen = embedding_lr == 0 or not (moving is None or stack.widths.keys() & set(moving))
        self.still_D = None if moving is None else still_columns(stack.widths, moving, stack.workspace.device)
        self.tables: Tables
        if self.frozen:
            self.tables = FrozenTable(stack, cut)
        elif cut and isinstance(config, SGD) and config.schedule == "constant":
            touched = NativeRows if native else TouchedRows
            self.tables = touched(stack, embedding_lr, config.momentum)
        elif cut and native and isinstance(config, Adam):
            self.tables = NativeAdamRows(stack, config, lambda client: self._rate(embedding_lr, client))
        else:
            chosen = CutTables if cut else WholeTable
            self.tables = chosen(stack, kinds(config), lambda *what: self._advance(embedding_lr, *what))
        self._views: dict[tuple[range, int | None], tuple[dict[str, Tensor], list[str], list[Tensor]]] = {}
        self._flat: dict[tuple[range, int | None], list[tuple[Any, ...]]] = {}  # arguments of `_advance`
        self._steps: list[dict[str, Tensor]] = []  # Adam's for each parameter; see `state`
        if self.apart or len(self.tasks) < len(stack.layout.shapes) or set(self.scales.values()) - {1.0}:
            self._steps = [{name: torch.zeros_like(step) for name in self.tasks} for step in self.steps]
        self.reset()

    def reset(self) -> None:
        """Reset all state, for new clients in the stack."""
        apart = (step for steps in self._steps for step in steps.values())
        for tensor in (self.grad_CP, *self.memory.values(), *self.steps, *apart):
            tensor.zero_()
        self.tables.reset()
        self.ahead: list[int] = []  # a client's total number of steps, if the schedule depends on it
        self.made = [0] * self.stack.clients

    def plan(self, steps: Sequence[int]) -> None:
        """Set each client's total number of steps, for its schedule. Without it the rate is constant."""
        self.ahead = list(steps) if self.config.schedule == "linear" else []

    def begin(self, clients: range, words: Sequence[Ints], task: int = 0) -> dict[str, Tensor]:
        """Return the parameters for a step, at which the gradient is taken.

        Args:
            clients: The clients of the step. With several, tensors have a leading axis of clients.
            words: Rows of the batch's words in each client's table; the table has only these rows if it is cut.
            task: The task of the batch.
        """
        self._key = key = clients, task if self.apart else None
        if key not in self._views:
            chosen = slice(clients.start, clients.stop) if len(clients) > 1 else clients.start
            views = self.stack.views(self.stack.flat_CP), self.stack.views(self.grad_CP)
            leaves, grads = ({name: tensor[chosen].detach() for name, tensor in named.items()} for named in views)
            moving = [name for name, own in self.tasks.items() if own is None or own == task]
            for name in moving:
                leaves[name].requires_grad_()
            self._views[key] = leaves, moving, [grads[name] for name in moving]
            self._flat[key] = self._advanced(clients, moving)
        (leaves, moving, _), table = self._views[key], self.tables.begin(clients, words)
        self._leaves = [*[leaves[name] for name in moving], *([] if self.frozen else [table])]
        return self.stack.shared(clients) | leaves | self.stack.columns(table)

    def _advanced(self, clients: range, moving: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the arguments of ``_advance``, for each rate: all parameters that move, as one tensor if all of them
        do with one rate."""
        flats = {"": self.stack.flat_CP, "gradient": self.grad_CP, **self.memory}
        if not self._steps:
            pieces = {kind: [flat[c] for c in clients] for kind, flat in flats.items()}
            steps = [self.steps[c] for c in clients]
            return [(self.lr, clients, pieces.pop(""), pieces.pop("gradient"), pieces, steps)]
        named, groups = {kind: self.stack.views(flat) for kind, flat in flats.items()}, []
        for scale in sorted({self.scales[name] for name in moving}):
            names = [name for name in moving if self.scales[name] == scale]
            pieces = {kind: [each[name][c] for c in clients for name in names] for kind, each in named.items()}
            steps = [self._steps[c][name] for c in clients for name in names]
            groups.append((scale * self.lr, clients, pieces.pop(""), pieces.pop("gradient"), pieces, steps))
        return groups

    def step(self, clients: range, loss: Tensor, correction: Callable[[Tensors], Tensors] | None = None) -> None:
        """Make a step along the gradient of ``loss`` at the parameters of ``begin``.

        Args:
            clients: The clients of the step, as in ``begin``.
            loss: The sum of their objectives.
            correction: The method's change of the gradient; None: none.
        """
        self.follow(clients, self.gradient(loss), correction)

    def gradient(self, loss: Tensor) -> list[Tensor]:
        """Return the gradient at the parameters of ``begin``, in their order."""
        return list(torch.autograd.grad(loss, self._leaves, allow_unused=True, materialize_grads=True))

    def follow(
        self, clients: range, grads: list[Tensor], correction: Callable[[Tensors], Tensors] | None = None
    ) -> None:
        """Make a step along a gradient.

        Args:
            clients: The clients of the step, as in ``begin``.
            grads: The gradient, as ``gradient`` returns it; the list is changed.
            correction: The method's change of the gradient; None: none.
        """
        table_grad = None if self.frozen else grads.pop()
        if correction:
            grads, table_grad = self._corrected(correction, grads, table_grad)
        held = self._views[self._key][2]
        if grads:
            torch._foreach_copy_(held, grads)
        self._table_grad = table_grad
        self.apply(clients)

    def gradients(self, clients: range) -> dict[str, Tensor] | None:
        """Return zeros to which the gradients at the parameters of ``begin`` are to be added; then call ``apply``.

        Args:
            clients: The clients of the step, as in ``begin``.

        Returns:
            The gradients by the names of the parameters, those of each client contiguous as these; None if not all
            parameters move, of which some may never change, or there are several tables, which share rows in memory.
        """
        leaves, moving, held = self._views[self._key]
        if self.frozen or self.stack.constants or len(moving) < len(leaves) or len(self.stack.widths) > 1:
            return None
        self.grad_CP[clients.start : clients.stop].zero_()
        self._table_grad = torch.zeros_like(self._leaves[-1])
        return dict(zip(moving, held, strict=True)) | self.stack.columns(self._table_grad)

    def apply(self, clients: range) -> None:
        """Make a step along the gradients of ``gradients``, at the parameters of ``begin``."""
        table_grad, held = self._table_grad, self._views[self._key][2]
        if table_grad is not None and self.only is not None:
            table_grad = table_grad * self.only[self.tables.rows].view(*table_grad.shape[:-1], 1)
        if table_grad is not None and self.still_D is not None:
            table_grad = table_grad.masked_fill(self.still_D, 0)
        if self.config.clip_norm is not None:
            table_grad = self._clipped(self.config.clip_norm, clients, table_grad)
        if held:
            for group in self._flat[self._key]:
                self._advance(*group)
            if self.apart and self.config.clip_norm is not None:  # the norm is that of the batch's own gradient
                torch._foreach_zero_(held)
        for name, (least, largest) in self.bounds.items():
            self.stack.views(self.stack.flat_CP)[name][clients.start : clients.stop].clamp_(least, largest)
        if table_grad is not None:
            self._step_tables(clients, table_grad)
        for client in clients if self.ahead else ():
            self.made[client] += 1

    def _step_tables(self, clients: range, grad: Tensor) -> None:
        """Make a step of the tables. Weight decay shrinks whole rows: columns that do not move are put back."""
        still_D = self.still_D if decays(self.config) else None
        if still_D is None:
            return self.tables.step(clients, grad)
        rows_RD = self.stack.table_ND[self.stack.starts[clients.start] : self.stack.starts[clients.stop]]
        before_RD = rows_RD.clone()
        self.tables.step(clients, grad)
        rows_RD.copy_(torch.where(still_D, before_RD, rows_RD))

    def _corrected(
        self, correction: Callable[[Tensors], Tensors], grads: list[Tensor], table_grad: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None]:
        moving = self._views[self._key][1]
        named = Tensors(zip(moving, grads, strict=True))
        if table_grad is not None:
            named.update(self.stack.columns(table_grad))
        with torch.no_grad():
            changed = correction(named)
            tables = None if table_grad is None else torch.cat([changed[name] for name in self.stack.widths], -1)
        return [changed[name] for name in moving], tables

    def lr_sums(self, parameters: Iterable[str], steps: int) -> dict[str, float]:
        """Return how far a gradient of 1 in each of ``steps`` steps moves each parameter, without initial momentum.

        Empty for optimizers whose steps are not linear in gradients.
        """
        if not isinstance(self.config, SGD):
            return {}
        velocity = share = 0.0  # of the rate, over all steps
        for step in range(steps):
            velocity = self.config.momentum * velocity + 1
            share += self.config.slope(step, steps) * velocity
        return {name: share * self._lr(name) for name in parameters}

    def _lr(self, parameter: str) -> float:
        return self.embedding_lr if is_table(parameter) else self.lr * self.scales.get(parameter, 1.0)

    def _advance(
        self,
        lr: float,
        clients: range,
        parameters: list[Tensor],
        grads: list[Tensor],
        memory: Mapping[str, list[Tensor]],
        steps: list[Tensor],
    ) -> None:
        """Make a step of these clients, each with the current rate of its schedule."""
        if not self.ahead:
            return advance(self.config, lr, parameters, grads, memory, steps)
        pieces = len(parameters) // len(clients)
        for place, client in enumerate(clients):
            own = slice(place * pieces, (place + 1) * pieces)
            remembered = {kind: tensors[own] for kind, tensors in memory.items()}
            advance(self.config, self._rate(lr, client), parameters[own], grads[own], remembered, steps[own])

    def _rate(self, lr: float, client: int) -> float:
        """Return a client's current rate by its schedule, which begins at ``lr``."""
        return lr * self.config.slope(self.made[client], self.ahead[client]) if self.ahead else lr

    def _clipped(self, norm: float, clients: range, table_grad: Tensor | None) -> Tensor | None:
        """Clip each client's gradient as torch.nn.utils.clip_grad_norm_ does, and return the table's, which is not
        clipped in place."""
        grad_CP = self.grad_CP[clients.start : clients.stop]
        squares_C = grad_CP.square().sum(1)
        if table_grad is not None:
            squares_C += table_grad.reshape(len(clients), -1).square().sum(1)
        scale_C = (norm / (squares_C.sqrt() + 1e-6)).clamp_max(1)
        grad_CP.mul_(scale_C[:, None])
        if table_grad is None:
            return None
        return (table_grad.reshape(len(clients), -1) * scale_C[:, None]).view(table_grad.shape)

    def finish(self) -> None:
        """Bring all rows up to date. Call it before the tables are used."""
        self.tables.finish()

    def state(self, client: int) -> dict[str, Tensor]:
        """Return the optimizer's state of a client, as named tensors.

        Their names are ``<parameter>/<kind>``, and for Adam ``step``, or ``<parameter>/step`` if not all parameters
        move in every step, or their rates differ.
        """
        kept = {
            f"{name}/{kind}": tensor[client]
            for kind, memory in self.memory.items()
            for name, tensor in self.stack.views(memory).items()
        }
        kept |= {f"tables/{kind}": tensor for kind, tensor in self.tables.state(client).items()}
        if not isinstance(self.config, Adam):
            return kept
        if self._steps:
            return kept | {f"{name}/step": step for name, step in self._steps[client].items()}
        return kept | {"step": self.steps[client]}

    def recall(self, client: int, state: Mapping[str, Tensor]) -> None:
        """Restore a client's state that ``state`` returned. Raises ValueError if it has other tensors."""
        expected = self.state(client) if state else {}
        if state.keys() != expected.keys():
            raise ValueError("the saved state of its optimizer is from another version of this code")
        for name, tensor in expected.items():
            tensor.copy_(state[name])
