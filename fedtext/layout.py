"""Named tensors in one flat float32 buffer, the form in which they are broadcast, checkpointed and aggregated."""

from collections.abc import Collection, Mapping
from math import isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGN = 16  # floats: every tensor starts on a cache line, wherever the ones before it end
Shapes = Mapping[str, tuple[int, ...]]
TABLE = "embedding.weight"  # name of the shared embedding table; its first axis is the vocabulary


def is_table(parameter: str) -> bool:
    """Whether a parameter's first axis is the vocabulary, as in modules of a network named ``embedding...``."""
    return parameter.startswith("embedding") and parameter.count(".") == 1 and parameter.endswith(".weight")


def finite(tensor: NDArray[np.floating]) -> bool:
    """Return whether all elements are finite, usually with a single sum."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(tensor.sum()) or np.isfinite(tensor).all())


def not_finite(tensors: Mapping[str, NDArray[np.floating]]) -> str:
    """Return the name of a tensor with an element that is not finite; empty if there is none."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = {name: float(np.add.reduce(tensor, axis=None)) for name, tensor in tensors.items()}
    unsure = (name for name, total in sums.items() if not isfinite(total))
    return next((name for name in unsure if not np.isfinite(tensors[name]).all()), "")


class Layout:
    """The offset of each named tensor in a flat buffer.

    Args:
        shapes: Shapes by name, in the order of the buffer.

    Attributes:
        starts: Offset of each tensor, in floats.
        size: Size of the buffer in floats, with gaps between tensors for alignment.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = dict(shapes)
        self.starts: dict[str, int] = {}
        self.size = 0
        self._ends: dict[str, int] = {}
        for name, shape in self.shapes.items():
            self.starts[name], self._ends[name] = self.size, self.size + prod(shape)
            self.size += -(-prod(shape) // ALIGN) * ALIGN

    @property
    def numbers(self) -> int:
        """Number of coordinates, without the gaps between tensors."""
        return sum(map(prod, self.shapes.values()))

    def views(self, flat: Any) -> dict[str, Any]:
        """Return the named tensors as views into ``flat``, which is an array or a tensor."""
        starts, ends = self.starts, self._ends
        return {name: flat[starts[name] : ends[name]].reshape(shape) for name, shape in self.shapes.items()}

    def places(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """Return (name, offset, shape) of each tensor."""
        return [(name, self.starts[name], shape) for name, shape in self.shapes.items()]

    def common(self, other: "Layout", names: Collection[str]) -> list[tuple[slice, slice]]:
        """Return where some tensors of equal shapes are in this layout and in another one, with the gaps behind them;
        neighbours in both are one piece."""
        found: list[tuple[slice, slice]] = []
        for name, start, shape in self.places():
            if name in names:
                here, there, size = start, other.starts[name], -(-prod(shape) // ALIGN) * ALIGN
                if found and (found[-1][0].stop, found[-1][1].stop) == (here, there):
                    here, there = (piece.start for piece in found.pop())
                found.append((slice(here, start + size), slice(there, other.starts[name] + size)))
        return found

    def pack(self, tensors: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """Copy tensors into a new flat buffer."""
        flat = np.zeros(self.size, np.float32)
        for name, view in self.views(flat).items():
            view[...] = tensors[name]
        return flat

    def with_rows(self, rows: int) -> "Layout":
        """Return the layout with ``rows`` rows in the embedding table, and in a method's state and extras for it."""
        return Layout({n: (rows, *s[1:]) if n.rpartition("/")[2] == TABLE else s for n, s in self.shapes.items()})
