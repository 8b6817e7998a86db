"""The part of the shared parameters that never changes, in a file of its own: the word table beside an adapter.

It is the beginning of the flat buffer. The name of its file is that of its content, so that checkpoints can share it.
"""

import hashlib
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

NAME = re.compile(r"fixed-[0-9a-f]{16}\.f32")


class FixedPart:
    """The file of it, as checkpoints have it.

    Args:
        size: Number of numbers at the beginning of the flat buffer.
    """

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self._known: NDArray[np.float32] | None = None
        self._name = ""

    def name(self, flat: NDArray[np.float32]) -> str:
        """Return the name of its file; empty if there is no such part."""
        part = flat[: self.size]
        if not self.size:
            return ""
        if self._known is None or not np.array_equal(self._known.view(np.int32), part.view(np.int32)):
            self._known = part.copy()
            self._name = f"fixed-{hashlib.sha256(self._known.data).hexdigest()[:16]}.f32"
        return self._name


def fixed_file(names: Iterable[str]) -> str:
    """Return the name of the file among those of a checkpoint; empty if it has none."""
    return next((name for name in names if NAME.fullmatch(name)), "")
