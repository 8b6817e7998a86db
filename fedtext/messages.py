"""The messages between clients and server: a client's update, and its reply."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


class SideBySide(dict[str, NDArray[np.float32]]):
    """Tensors by name whose elements lie in one array, for what is done with each element alike.

    Args:
        tensors: The tensors.
        values_N: Their elements.
        starts: Offset of each tensor among these, by name.
    """

    def __init__(
        self, tensors: Mapping[str, NDArray[np.float32]], values_N: NDArray[np.float32], starts: Mapping[str, int]
    ) -> None:
        super().__init__(tensors)
        self.values_N, self.starts = values_N, starts


@dataclass(frozen=True)
class Update:
    """A client's update.

    Attributes:
        client: The client's id.
        samples: n_k, the client's number of train texts.
        tensors: Differences from the received parameters, by name.
        rows: Rows of the embedding table that ``tensors[TABLE]`` has; None: all of them.
    """

    client: int
    samples: int
    tensors: Mapping[str, NDArray[np.float32]]
    rows: NDArray[np.int32] | None = None


@dataclass(frozen=True)
class Reply:
    """A client's reply after its local update.

    Attributes:
        client: The client's id.
        payload: The encoded update as a uint8 array, which is passed between processes without a copy. Empty if the
            update has already been added to a partial sum.
        bytes_up: Size of the encoded update.
        metrics: Metrics of the local update, by name.
        error: Why the local update failed; empty if it did not.
        trained: Whether it failed by what its training led to, and does so whenever it is repeated; an error during the
            local update may have a passing reason, such as want of memory.
        unfit: Whether it fails with every client, since the network cannot be trained.
    """

    client: int
    payload: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    bytes_up: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    error: str = ""
    trained: bool = False
    unfit: bool = False
