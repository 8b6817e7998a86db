"""The parameters that the clients of a host are given, on its device."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.client.load import Values
from fedtext.layout import Layout, is_table


class Given:
    """What clients receive from the server, and what they have from the beginning.

    Args:
        shared: The layout of the parameters that they receive, at the beginning of a broadcast.
        unshared: Initial values of all others, tables with V rows.
        is_fixed: Whether one of these never changes.
        device: The device.

    Attributes:
        fixed: Those that never change, on the device.
    """

    def __init__(
        self,
        shared: Layout,
        unshared: Mapping[str, NDArray[np.float32]],
        is_fixed: Callable[[str], bool],
        device: torch.device,
    ) -> None:
        self.shared, self.unshared, self.device = shared, unshared, device
        self.fixed = {name: self._placed(values) for name, values in unshared.items() if is_fixed(name)}
        self.last: tuple[NDArray[np.float32], Tensor] | None = None

    def constants(self) -> dict[str, Tensor]:
        """Return the fixed ones as tensors, but tables, of which each client has some rows."""
        found = {name: values for name, values in self.fixed.items() if not is_table(name)}
        return {name: values if isinstance(values, Tensor) else torch.tensor(values) for name, values in found.items()}

    def broadcast(self, flat: NDArray[np.float32]) -> Values:
        """Return the broadcast on the device, copied to a GPU once for all clients of a round.

        Its address identifies it: each call of an actor has its own array over the same memory, which is not reused as
        long as one of these arrays is referenced.
        """
        if self.device.type == "cpu":
            return flat
        if self.last is None or (self.last[0].ctypes.data, self.last[0].size) != (flat.ctypes.data, flat.size):
            self.last = None  # its memory is needed
            self.last = flat, torch.tensor(flat, device=self.device)
        return self.last[1]

    def received(self, flat: NDArray[np.float32]) -> dict[str, Values]:
        """Return the server's parameters and the fixed ones by name."""
        return {**self.fixed, **self.shared.views(self.broadcast(flat))}

    def all(self, flat: NDArray[np.float32]) -> dict[str, Values]:
        """Return the parameters of a client without private state by name."""
        return {**self.unshared, **self.received(flat)}

    def _placed(self, values: NDArray[np.float32]) -> Values:
        return values if self.device.type == "cpu" else torch.tensor(values, device=self.device)
