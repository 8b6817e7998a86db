"""The updates of a round side by side, for aggregations that compare them.

Legend: K updates, R rows of a tensor, N entries of a row.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations.base import State
from fedtext.layout import TABLE
from fedtext.messages import Update

_PIECE = 1 << 18  # numbers of a piece, in float64: 2 MB, about a core's cache

Piece = tuple[str, slice, NDArray[np.float64]]  # a tensor's name, some of its rows, and these rows of all updates


class UpdateSet:
    """The updates of a round, read some rows at a time.

    Rows come in float64 and of all updates, which are ordered by their clients: results depend neither on the order in
    which updates arrived nor on which rows travel. Rows that an update leaves out are zeros, and so is what a client
    of a lower rank does not have of a tensor.

    Memory: all updates as they arrived, that is 4 bytes times K times the coordinates that a client sends, and a few
    pieces of 2 MB, or of K rows where these are larger.

    Args:
        state: The shared parameters, for the shapes of their tensors.
        updates: At least one.
    """

    def __init__(self, state: State, updates: Iterable[Update]) -> None:
        self.updates: Sequence[Update] = sorted(updates, key=lambda update: update.client)
        self.state = {name: tensor for name, tensor in state.items() if name in self.updates[0].tensors}
        orders = (None if update.rows is None else np.argsort(update.rows) for update in self.updates)
        self.orders = list(orders)  # of each update's rows of the table

    def __len__(self) -> int:
        return len(self.updates)

    def pieces(self) -> Iterator[Piece]:
        """Yield all that was sent, some rows of a tensor at a time, as float64 [K, R, N]. A vector has rows of one."""
        for name, tensor in self.state.items():
            rows, numbers = _matrix(tensor.shape)
            step = max(1, _PIECE // max(1, len(self) * numbers))
            for start in range(0, rows, step):
                part = slice(start, min(start + step, rows))
                changes_KRN = np.zeros((len(self), part.stop - start, numbers))
                for place in range(len(self)):
                    self._read(place, name, part, changes_KRN[place])
                yield name, part, changes_KRN

    def _read(self, place: int, name: str, part: slice, into_RN: NDArray[np.float64]) -> None:
        update, order = self.updates[place], self.orders[place]
        delta = update.tensors[name]
        delta_RN = delta.reshape(_matrix(delta.shape))
        if name != TABLE or update.rows is None or order is None:
            there_RN = delta_RN[part]
            into_RN[: there_RN.shape[0], : there_RN.shape[1]] = there_RN
            return
        low, high = np.searchsorted(update.rows, [part.start, part.stop], sorter=order)
        held = order[low:high]
        into_RN[update.rows[held] - part.start] = delta_RN[held]

    def combined(self, combine: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """Return the change of each tensor that was sent, in its shape. ``combine`` makes [R, N] of [K, R, N]."""
        changes = {name: np.empty(tensor.shape) for name, tensor in self.state.items()}
        for name, part, changes_KRN in self.pieces():
            changes[name].reshape(_matrix(changes[name].shape))[part] = combine(changes_KRN)
        return changes

    def distances(self, point: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the L2 distance of each update from a point, over all tensors together: [K]."""
        squares_K = np.zeros(len(self))
        for name, part, changes_KRN in self.pieces():
            changes_KRN -= point[name].reshape(_matrix(point[name].shape))[part]
            squares_K += _squares(changes_KRN)
        return np.sqrt(squares_K)

    def pairs(self) -> NDArray[np.float64]:
        """Return the squared L2 distances of each two updates, over all tensors together: [K, K]. They cost K^2 / 2
        times the number of coordinates."""
        squares_KK = np.zeros((len(self), len(self)))
        for _, _, changes_KRN in self.pieces():
            for place, change_RN in enumerate(changes_KRN, 1):
                squares_KK[place - 1, place:] += _squares(changes_KRN[place:] - change_RN)
        return squares_KK + squares_KK.T


def moved(state: State, changes: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float32]]:
    """Return the shared parameters after a change, which is used up. A tensor without one stays as it is."""
    return {name: _added(changes[name], tensor) if name in changes else tensor for name, tensor in state.items()}


def _added(change: NDArray[np.float64], tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    change += tensor
    return change.astype(np.float32)


def _squares(apart_KRN: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.einsum("krn,krn->k", apart_KRN, apart_KRN)


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    """Return the number of rows of a tensor, and of entries in each."""
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)
