"""The memory in which clients are trained: one workspace for all clients of a worker, which is reused.

Legend: C clients of a stack, P parameters besides the embedding table, R rows of a client's table, N rows of all
tables and C more, D embedding (of all tables side by side, if a method has several).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from fedtext.layout import Layout, is_table


class Workspace:
    """Named buffers that grow to the largest requested size and are kept, so that rounds allocate nothing."""

    def __init__(self, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.device, self.dtype = device, dtype
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return a contiguous, uninitialised tensor. Tensors taken earlier under this name become invalid.

        Args:
            name: Name of the buffer.
            shape: Shape of the tensor.
            dtype: Its type; None: the workspace's.
        """
        size = prod(shape)
        if name not in self.buffers or len(self.buffers[name]) < size:
            self.buffers[name] = torch.empty(size, dtype=dtype or self.dtype, device=self.device)
        return self.buffers[name][:size].view(shape)


class Stack:
    """Parameters of C clients side by side.

    The same number of other clients can take their place later (``seat``).

    Args:
        layout: The parameters; its number of rows of tables is replaced by each client's own.
        rows: Number of rows of each client's tables.
        workspace: The memory.
        constants: Parameters of all clients that never change, beside those of ``layout``.

    Attributes:
        flat_CP: All parameters of ``layout`` but the tables.
        table_ND: The tables of all clients, followed by one row for each client, which pads its words without effect.
    """

    def __init__(
        self, layout: Layout, rows: Sequence[int], workspace: Workspace, constants: Mapping[str, Tensor] | None = None
    ) -> None:
        self.workspace, self.clients, self.constants = workspace, len(rows), dict(constants or {})
        self.widths = {name: shape[1] for name, shape in layout.shapes.items() if is_table(name)}
        self.dim = sum(self.widths.values())
        self.layout = Layout({name: shape for name, shape in layout.shapes.items() if name not in self.widths})
        self.flat_CP = workspace.take("parameters", self.clients, self.layout.size)
        self.flat_CP.zero_()  # between two tensors there may be a gap
        named = self.views(self.flat_CP)
        self.named = [{name: tensor[client] for name, tensor in named.items()} for client in range(self.clients)]
        self.seat(rows)

    def seat(self, rows: Sequence[int]) -> None:
        """Make room for the tables of other clients. Optimizers of the stack must be reset afterwards."""
        self.starts = [0, *accumulate(rows)]
        self.table_ND = self.workspace.take("table", self.starts[-1] + self.clients, self.dim)
        self.table_ND[self.starts[-1] :].zero_()

    def tables(self, tensor_ND: Tensor) -> list[Tensor]:
        """Split a tensor of the size of all tables into each client's part, shape (R, D)."""
        return [tensor_ND[start:end] for start, end in zip(self.starts, self.starts[1:], strict=False)]

    def views(self, flat_CP: Tensor) -> dict[str, Tensor]:
        """Return the named tensors as views into ``flat_CP``, each of shape (C, ...)."""
        return {
            name: flat_CP[:, start : start + prod(shape)].unflatten(1, shape)
            for name, start, shape in self.layout.places()
        }

    def tensors(self, client: int) -> dict[str, Tensor]:
        """Return one client's parameters by name, with its tables, as views, and with those that never change."""
        return self.constants | self.loaded(client)

    def loaded(self, client: int) -> dict[str, Tensor]:
        """Return one client's parameters by name, with its tables, as views."""
        return self.named[client] | self.columns(self.table_ND[self.starts[client] : self.starts[client + 1]])

    def shared(self, clients: range) -> dict[str, Tensor]:
        """Return what never changes by name; for several clients with a leading axis of clients."""
        if len(clients) == 1:
            return self.constants
        return {name: tensor.expand(len(clients), *tensor.shape) for name, tensor in self.constants.items()}

    def fetched(self, client: int) -> dict[str, Tensor]:
        """Return one client's parameters on the CPU; from a GPU in two pieces, and what never changes once."""
        if self.workspace.device.type == "cpu":
            return self.tensors(client)
        flat_1P = self.flat_CP[client : client + 1].cpu()
        table_RD = self.table_ND[self.starts[client] : self.starts[client + 1]].cpu()
        moved = {name: tensor[0] for name, tensor in self.views(flat_1P).items()}
        return self._constants_here | moved | self.columns(table_RD)

    @cached_property
    def _constants_here(self) -> dict[str, Tensor]:
        return {name: tensor.cpu() for name, tensor in self.constants.items()}

    def columns(self, rows_XD: Tensor) -> dict[str, Tensor]:
        """Split rows of all tables side by side into those of each table, by name."""
        if len(self.widths) == 1:
            return dict.fromkeys(self.widths, rows_XD)
        return dict(zip(self.widths, rows_XD.split(list(self.widths.values()), -1), strict=True))
