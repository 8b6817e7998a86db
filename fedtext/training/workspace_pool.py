"""Where a worker's clients are trained, kept from round to round: for each width a stack, and its optimizers."""

from collections.abc import Callable, Sequence

import torch

from fedtext.layout import Layout
from fedtext.training.config import SGD, Adam
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace


class WorkspacePool:
    """Places clients whose parameters ``layout`` names, and trains them by ``config``. All use one memory in turn:
    the clients placed next overwrite those before. ``task_of`` is the method's."""

    def __init__(
        self,
        layout: Layout,
        config: SGD | Adam,
        cut: bool,
        device: torch.device,
        task_of: Callable[[str], int | None] = lambda parameter: None,
    ) -> None:
        self.layout, self.config, self.cut, self.task_of = layout, config, cut, task_of
        self.workspace = Workspace(device)
        self.stacks: dict[int, Stack] = {}  # by the number of clients they seat
        self.optimizers: dict[tuple[int, float, frozenset[str]], LocalOptimizer] = {}

    def stack(self, rows: Sequence[int]) -> Stack:
        """Return the places of clients with tables of these numbers of rows."""
        if len(rows) in self.stacks:
            self.stacks[len(rows)].seat(rows)
            return self.stacks[len(rows)]
        if len(rows) > max(self.stacks, default=0):  # it needs larger buffers, and narrower stacks will share them
            self.stacks.clear()
            self.optimizers.clear()
        return self.stacks.setdefault(len(rows), Stack(self.layout, rows, self.workspace))

    def optimizer(self, stack: Stack, lr: float, moving: frozenset[str]) -> LocalOptimizer:
        """The optimizer of those who are seated in ``stack``, with nothing remembered. It moves these parameters."""
        key = stack.clients, lr, moving
        if key in self.optimizers:
            self.optimizers[key].reset()
            return self.optimizers[key]
        made = LocalOptimizer(self.config, stack, lr, self.cut, moving, self.task_of)
        return self.optimizers.setdefault(key, made)
