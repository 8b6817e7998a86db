"""The server's passes over whole models in C (server/sums.c), with the bits of numpy's.

Small arrays are left to numpy, and all where there is no C compiler.

Legend: N entries of the flat buffer, R rows of an embedding table.
"""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.errors import UserError
from fedtext.runtime.compiled import array_address, compiled

SOURCE = Path(__file__).with_name("sums.c")
SMALL = 1 << 15  # entries; of fewer numpy's intermediate results stay in the cache


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = compiled(SOURCE, torch.float32)
    except UserError:
        return None
    place, pointer, number = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
    library.add_parts.argtypes = [place, place, pointer, pointer, number, place, pointer]
    library.add_parts.restype = number
    library.move.argtypes = [place, pointer, pointer, number, pointer]
    library.move.restype = None
    return library


def add_parts(
    sums_N: NDArray[np.float64],
    delta: NDArray[np.float32],
    share: float,
    inward: bool,
    rows_R: NDArray[np.int32] | None = None,
) -> float | None:
    """Add ``share * delta``, rounded to multiples of 2^-38, to sums.

    Args:
        sums_N: The sums, of a whole table with ``rows_R``.
        delta: What is added, of any shape.
        share: Its factor.
        inward: Whether products are rounded towards zero; else to the nearest multiple.
        rows_R: Rows of the table to which the rows of ``delta`` are added, each at most once; None: it is as long as
            the sums.

    Returns:
        The largest absolute value of ``delta``, NaN if there is one in it; None: nothing was added, since this is left
        to numpy.
    """
    library = _library()
    if library is None or delta.size <= SMALL or not _is(delta, np.float32):
        return None
    count, width, rows, last = 1, delta.size, None, 0
    if rows_R is not None:
        count, width, rows = len(rows_R), delta[0].size, array_address(rows_R)
        if not _is(rows_R, np.int32) or rows_R.min(initial=0) < 0:
            return None
        last = int(rows_R.max(initial=0))
    if count * width != delta.size or (last + 1) * width > len(sums_N):  # numpy says what is wrong
        return None
    found: float = library.add_parts(count, width, rows, array_address(delta), share, inward, array_address(sums_N))
    return found


def moved(flat_N: NDArray[np.float32], change_N: NDArray[np.float64], rate: float) -> NDArray[np.float32] | None:
    """Return ``flat_N + rate * change_N``; None if this is left to numpy.

    Args:
        flat_N: Parameters.
        change_N: Their change.
        rate: Its factor.
    """
    library = _library()
    if library is None or flat_N.size <= SMALL or flat_N.shape != change_N.shape:
        return None
    if not (_is(flat_N, np.float32) and _is(change_N, np.float64)):
        return None
    moved_N = np.empty_like(flat_N)
    library.move(len(flat_N), array_address(flat_N), array_address(change_N), rate, array_address(moved_N))
    return moved_N


def _is(array: NDArray, kind: type) -> bool:
    return array.dtype == kind and array.flags.c_contiguous and array.flags.aligned
