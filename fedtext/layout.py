"""Named tensors laid end to end in one flat float32 buffer: what is broadcast, checkpointed and aggregated."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGN = 16  # floats: every tensor starts on a cache line, wherever the ones before it end
Shapes = Mapping[str, tuple[int, ...]]
TABLE = "embedding.weight"  # the shared embedding table, if any is shared: its first axis is the vocabulary


def is_table(parameter: str) -> bool:
    """Whether a parameter's first axis is the vocabulary: those of a network's parts called ``embedding...``."""
    return parameter.startswith("embedding") and parameter.count(".") == 1 and parameter.endswith(".weight")


def finite(tensor: NDArray[np.floating]) -> bool:
    """Return whether all elements are finite. Costs one sum, which only absurdly large elements overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(tensor.sum()) or np.isfinite(tensor).all())


class Layout:
    """Where each tensor of ``shapes`` lies in a flat buffer of ``size`` floats."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = dict(shapes)
        self.starts: dict[str, int] = {}
        self.size = 0
        for name, shape in self.shapes.items():
            self.starts[name] = self.size
            self.size += -(-prod(shape) // ALIGN) * ALIGN

    @property
    def numbers(self) -> int:
        """How many there are, without the gaps between tensors."""
        return sum(map(prod, self.shapes.values()))

    def views(self, flat: Any) -> dict[str, Any]:
        """The named tensors as views into ``flat``, which is an array or a tensor."""
        return {
            name: flat[self.starts[name] : self.starts[name] + prod(shape)].reshape(shape)
            for name, shape in self.shapes.items()
        }

    def places(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """(name, start, shape) of each tensor."""
        return [(name, self.starts[name], shape) for name, shape in self.shapes.items()]

    def pack(self, tensors: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """A new flat buffer that holds copies of ``tensors``."""
        flat = np.zeros(self.size, np.float32)
        for name, view in self.views(flat).items():
            view[...] = tensors[name]
        return flat

    def with_rows(self, rows: int) -> "Layout":
        """The same tensors with ``rows`` rows in the embedding table, and in what a method keeps about it."""
        return Layout({n: (rows, *s[1:]) if n.rpartition("/")[2] == TABLE else s for n, s in self.shapes.items()})
