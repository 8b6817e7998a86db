"""The memory in which clients are trained: one workspace for all clients of a worker, used again and again.

Legend: C clients of a stack, P parameters besides the embedding table, R rows of a client's table, N rows of all
tables and C more, D embedding (of all tables side by side, if a method has several).
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from fedtext.layout import Layout, is_table


class Workspace:
    """Named buffers that grow to the largest size asked for and are then kept: nothing is allocated per round."""

    def __init__(self, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.device, self.dtype = device, dtype
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A contiguous tensor of this shape, its content whatever was there before. What was taken under the same name
        is void from now on."""
        size = prod(shape)
        if name not in self.buffers or len(self.buffers[name]) < size:
            self.buffers[name] = torch.empty(size, dtype=dtype or self.dtype, device=self.device)
        return self.buffers[name][:size].view(shape)


class Stack:
    """Parameters of C clients side by side: ``flat_CP`` without the tables, and all tables one after the other in
    ``table_ND``, which ends with one row more for each client: what pads its words, without effect on anything.

    ``layout`` names the tensors; its tables' row count is replaced by each client's own, ``rows``. Other clients, as
    many of them, can ``seat`` themselves later.
    """

    def __init__(self, layout: Layout, rows: Sequence[int], workspace: Workspace) -> None:
        self.workspace, self.clients = workspace, len(rows)
        self.widths = {name: shape[1] for name, shape in layout.shapes.items() if is_table(name)}
        self.dim = sum(self.widths.values())
        self.layout = Layout({name: shape for name, shape in layout.shapes.items() if name not in self.widths})
        self.flat_CP = workspace.take("parameters", self.clients, self.layout.size)
        self.flat_CP.zero_()  # between two tensors there may be a gap
        named = self.views(self.flat_CP)
        self.named = [{name: tensor[client] for name, tensor in named.items()} for client in range(self.clients)]
        self.seat(rows)

    def seat(self, rows: Sequence[int]) -> None:
        """Makes room for the tables of the clients that come next. Whoever keeps anything about tables starts anew."""
        self.starts = [0, *accumulate(rows)]
        self.table_ND = self.workspace.take("table", self.starts[-1] + self.clients, self.dim)
        self.table_ND[self.starts[-1] :].zero_()

    def tables(self, tensor_ND: Tensor) -> list[Tensor]:
        """Each client's R x D part of something that is as large as all tables."""
        return [tensor_ND[start:end] for start, end in zip(self.starts, self.starts[1:], strict=False)]

    def views(self, flat_CP: Tensor) -> dict[str, Tensor]:
        """The named tensors in ``flat_CP``, each C x its shape."""
        return {
            name: flat_CP[:, start : start + prod(shape)].unflatten(1, shape)
            for name, start, shape in self.layout.places()
        }

    def tensors(self, client: int) -> dict[str, Tensor]:
        """One client's parameters by name, its table among them, as views."""
        return self.named[client] | self.columns(self.table_ND[self.starts[client] : self.starts[client + 1]])

    def fetched(self, client: int) -> dict[str, Tensor]:
        """The same on the CPU: from elsewhere they come in two pieces, not one by one."""
        if self.workspace.device.type == "cpu":
            return self.tensors(client)
        flat_1P = self.flat_CP[client : client + 1].cpu()
        table_RD = self.table_ND[self.starts[client] : self.starts[client + 1]].cpu()
        return {name: tensor[0] for name, tensor in self.views(flat_1P).items()} | self.columns(table_RD)

    def columns(self, rows_XD: Tensor) -> dict[str, Tensor]:
        """Each table's own columns of rows of all of them."""
        if len(self.widths) == 1:
            return dict.fromkeys(self.widths, rows_XD)
        return dict(zip(self.widths, rows_XD.split(list(self.widths.values()), -1), strict=True))
