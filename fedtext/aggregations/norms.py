"""Norms of updates and of their layers.

Legend: R rows of a layer, or of those that an update holds; N entries of a row.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedtext.messages import Update
from fedtext.runtime.threads import one_blas_thread

_CHUNK = 1 << 15  # numbers at a time, so that intermediate results stay in the cache


def length(update: Update) -> float:
    """Return the L2 norm of an update, over all its tensors together. Rows of zeros, which it may leave out, change no
    bit."""
    return math.sqrt(math.fsum(square for delta in update.tensors.values() for square in _squares(as_matrix(delta))))


def frobenius(delta_RN: NDArray[np.float32]) -> float:
    """Return the Frobenius norm. Rows of zeros, which an update may leave out, change no bit."""
    return math.sqrt(math.fsum(_squares(delta_RN)))


def _squares(delta_RN: NDArray[np.float32]) -> Iterator[float]:
    """The squared norm of each row; their sum by ``math.fsum`` does not depend on how many are zero."""
    for part in parts(delta_RN):
        yield from np.square(delta_RN[part], dtype=np.float64).sum(1).tolist()


def spectral(delta_RN: NDArray[np.float32]) -> float:
    """Return the largest singular value.

    It is the root of the largest eigenvalue of the smaller Gram matrix, which costs far less than a decomposition of a
    table of many words, and no copy of it.
    """
    tall_RN = delta_RN.T if len(delta_RN) < delta_RN.shape[1] else delta_RN
    gram_NN = np.zeros((tall_RN.shape[1], tall_RN.shape[1]))
    with one_blas_thread():
        for part in parts(tall_RN, at_least=len(gram_NN)):
            rows_RN = tall_RN[part].astype(np.float64)
            gram_NN += rows_RN.T @ rows_RN
        return math.sqrt(np.linalg.eigvalsh(gram_NN).max(initial=0.0))


def as_matrix(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a view as a matrix: a vector as one row; of more axes than two, all but the first make a row."""
    return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)


def parts(matrix_RN: NDArray[np.float32], at_least: int = 1) -> Iterator[slice]:
    """Yield its rows, some at a time."""
    step = max(at_least, _CHUNK // max(1, matrix_RN.shape[1]))
    return (slice(start, start + step) for start in range(0, len(matrix_RN), step))
