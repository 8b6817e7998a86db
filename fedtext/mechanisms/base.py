"""What may be done to an update before it leaves a client, and undone on the server."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtext.schema import Strict

Tensors = dict[str, NDArray[np.float32]]


class Mechanism(Strict, ABC):
    """One step of an uplink, independent of the method. ``received`` holds the parameters the server sent this round,
    row for row as in ``delta``; both sides know them."""

    name: str
    randomises: ClassVar[bool] = False  # adds noise everywhere, which own rows alone would give away

    @abstractmethod
    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        """The client's half: what is sent instead of ``delta``."""

    def restore(self, sent: Tensors, received: Mapping[str, NDArray[np.float32]]) -> Tensors:
        """The server's half: an update again."""
        return sent
