"""What a client makes of the parameters that a server has sent."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.models.config import TABLE


class Received(Mapping[str, Tensor]):
    """The shared parameters as they came from the server, each copied when a loss first asks for it. The table has the
    client's own rows; a stack has none in common, so its losses may not ask (Method.reads_table says who does)."""

    def __init__(self, shared: Mapping[str, NDArray], rows_R: NDArray[np.int32] | None, device: torch.device) -> None:
        self.shared, self.rows_R, self.device = shared, rows_R, device
        self.copies: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.copies:
            array: Any = self.shared[name]
            if name == TABLE:
                assert self.rows_R is not None, "a loss that reads the table has to say so (reads_table)"
                array = array[self.rows_R]
            self.copies[name] = torch.tensor(array, device=self.device)
        return self.copies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shared)

    def __len__(self) -> int:
        return len(self.shared)


def load_into(into: Tensor, source: NDArray[np.float32], rows: NDArray[np.int32] | None = None) -> None:
    """``source``, or some of its rows, into a tensor on any device."""
    if into.device.type != "cpu":
        into.copy_(torch.tensor(source if rows is None else source[rows]))
    elif rows is None:
        np.copyto(into.numpy(), source)
    else:
        np.take(source, rows, axis=0, out=into.numpy(), mode="clip")  # clip: without a copy
