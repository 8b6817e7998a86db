"""The stacks and optimizers of a worker, kept from round to round."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from fedtext.layout import Layout
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace


class WorkspacePool:
    """Provides stacks, one for each number of clients, and their optimizers. All of them share one memory: the clients
    placed next overwrite those before.

    Args:
        layout: The parameters of a client.
        device: The torch device.
        make: Makes the optimizer of a stack, given also the learning rate and, as ``moving``, what it moves.
        constants: Parameters of all clients that never change, beside those of ``layout``.
    """

    def __init__(
        self,
        layout: Layout,
        device: torch.device,
        make: Callable[..., LocalOptimizer],
        constants: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.layout, self.make, self.constants = layout, make, constants
        self.workspace = Workspace(device)
        self.stacks: dict[int, Stack] = {}  # by the number of clients
        self.optimizers: dict[tuple[int, float, frozenset[str]], LocalOptimizer] = {}

    def stack(self, rows: Sequence[int]) -> Stack:
        """Return a stack for clients whose tables have the given numbers of rows."""
        if len(rows) in self.stacks:
            self.stacks[len(rows)].seat(rows)
            return self.stacks[len(rows)]
        if len(rows) > max(self.stacks, default=0):  # it needs larger buffers, and narrower stacks will share them
            self.stacks.clear()
            self.optimizers.clear()
        return self.stacks.setdefault(len(rows), Stack(self.layout, rows, self.workspace, self.constants))

    def optimizer(self, stack: Stack, lr: float, moving: frozenset[str]) -> LocalOptimizer:
        """Return an optimizer without state.

        Args:
            stack: The stack.
            lr: The learning rate.
            moving: Names of the parameters that it moves.
        """
        key = stack.clients, lr, moving
        if key in self.optimizers:
            self.optimizers[key].reset()
            return self.optimizers[key]
        return self.optimizers.setdefault(key, self.make(stack, lr, moving=moving))
