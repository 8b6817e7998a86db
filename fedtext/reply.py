"""What a client's turn gives."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Reply:
    """What comes back from a client after its turn: an encoded payload and figures for the log, or the reason why not.

    ``payload`` is bytes as a uint8 array, which crosses processes without a copy; ``bytes_up`` is its size, also where
    it has been added up on the way and is empty by now.
    """

    client: int
    payload: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    bytes_up: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    error: str = ""
