"""The messages between clients and server: a client's update, and its reply."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Update:
    """A client's update: ``tensors`` are differences to the parameters it received.

    ``rows`` names the rows of the embedding table that ``tensors[TABLE]`` holds; None: all of them.
    ``samples`` is n_k, the client's number of training texts.
    """

    client: int
    samples: int
    tensors: Mapping[str, NDArray[np.float32]]
    rows: NDArray[np.int32] | None = None


@dataclass(frozen=True)
class Reply:
    """A client's answer after its local update: an encoded payload and metrics for the log, or the reason
    why not.

    ``payload`` is bytes as a uint8 array, which crosses processes without a copy; ``bytes_up`` is its size, also where
    it has been added up on the way and is empty by now.
    """

    client: int
    payload: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    bytes_up: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    error: str = ""
