"""Loading of the parameters that a client received."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.layout import TABLE, Layout
from fedtext.runtime.devices import to_device
from fedtext.training.stack import Stack

TABLE_USED = (
    f"the loss uses received[{TABLE!r}], whose rows are not those of the batch: write reads_table = True in the class "
    "of the method, so that both have all rows of the client"
)
Values = NDArray[np.float32] | Tensor  # a Tensor on a GPU


class Received(Mapping[str, Tensor]):
    """The shared parameters that a client received, as tensors that are made when a loss first uses them.

    Args:
        shared: The parameters, tables with V rows.
        rows_R: The client's own rows of the table; None: a loss must not use the table (``Method.reads_table``).

    Raises:
        ValueError: The table is asked for, and must not be used.
    """

    def __init__(self, shared: Mapping[str, Values], rows_R: NDArray[np.int32] | None) -> None:
        self.shared, self.rows_R = shared, rows_R
        self.ready: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.ready:
            values = self.shared[name]
            if name == TABLE:
                if self.rows_R is None:
                    raise ValueError(TABLE_USED)
                values = chosen_rows(values, self.rows_R)
            self.ready[name] = values if isinstance(values, Tensor) else torch.tensor(values)
        return self.ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shared)

    def __len__(self) -> int:
        return len(self.shared)


def chosen_rows(source: Values, rows: NDArray[np.int32]) -> Values:
    """Return rows of a table, on its device."""
    return source.index_select(0, to_device(rows, source.device)) if isinstance(source, Tensor) else source[rows]


def load_alike(stack: Stack, flat: Values, layout: Layout, names: Collection[str]) -> None:
    """Copy parameters of which all clients of a stack have the same values.

    Args:
        stack: The stack.
        flat: The values, flat.
        layout: The layout of ``flat``.
        names: The parameters, no tables; neighbours in both layouts are copied as one piece.
    """
    for into, source in stack.layout.common(layout, names):
        load_into(stack.flat_CP[:, into], flat[source])


def load_into(into: Tensor, source: Values, rows: NDArray[np.int32] | None = None) -> None:
    """Copy values, or some of their rows, into a tensor on any device.

    Args:
        into: The tensor.
        source: The values.
        rows: Which rows of ``source`` to copy; None: all.
    """
    if into.device.type != "cpu":
        chosen = source if rows is None else chosen_rows(source, rows)
        into.copy_(chosen if isinstance(chosen, Tensor) else to_device(chosen, into.device))
    elif rows is None:
        np.copyto(into.numpy(), source)
    else:
        np.take(source, rows, axis=0, out=into.numpy(), mode="clip")  # clip: without a copy
