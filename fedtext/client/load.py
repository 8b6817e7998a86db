"""The parameters that a server has sent, as a client holds them."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.layout import TABLE
from fedtext.runtime.devices import to_device

Values = NDArray[np.float32] | Tensor  # a Tensor if they lie on a GPU


class Received(Mapping[str, Tensor]):
    """The shared parameters as they came from the server, each made ready when a loss first asks for it. The table has
    the client's own rows; a stack has none in common, so its losses may not ask (Method.reads_table says who does)."""

    def __init__(self, shared: Mapping[str, Values], rows_R: NDArray[np.int32] | None) -> None:
        self.shared, self.rows_R = shared, rows_R
        self.ready: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.ready:
            values = self.shared[name]
            if name == TABLE:
                assert self.rows_R is not None, "a loss that reads the table has to say so (reads_table)"
                values = chosen_rows(values, self.rows_R)
            self.ready[name] = values if isinstance(values, Tensor) else torch.tensor(values)
        return self.ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shared)

    def __len__(self) -> int:
        return len(self.shared)


def chosen_rows(source: Values, rows: NDArray[np.int32]) -> Values:
    """Some rows of a table, where it lies."""
    return source.index_select(0, to_device(rows, source.device)) if isinstance(source, Tensor) else source[rows]


def load_into(into: Tensor, source: Values, rows: NDArray[np.int32] | None = None) -> None:
    """``source``, or some of its rows, into a tensor on any device."""
    if into.device.type != "cpu":
        chosen = source if rows is None else chosen_rows(source, rows)
        into.copy_(chosen if isinstance(chosen, Tensor) else to_device(chosen, into.device))
    elif rows is None:
        np.copyto(into.numpy(), source)
    else:
        np.take(source, rows, axis=0, out=into.numpy(), mode="clip")  # clip: without a copy
