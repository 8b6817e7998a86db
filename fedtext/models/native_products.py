"""Engine native: products of matrices in C (models/products.c).

Legend: M rows, K the inner width, N columns.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtext.runtime.compiled import BITS, address, compiled

SOURCE = Path(__file__).with_name("products.c")
DEPTH, BLOCK, WIDEST = 256, 512, 16  # of models/products.h: rows and columns of a block, numbers in a vector, at most
_IN_C: ContextVar[bool] = ContextVar("products in C", default=False)


@dataclass(frozen=True)
class Packed:
    """The right factor of a product, in the order in which a product reads it.

    Attributes:
        panels: Its numbers.
        depth, columns: K and N.
    """

    panels: Tensor
    depth: int
    columns: int

    @classmethod
    def of(cls, right_KN: Tensor) -> "Packed":
        """Pack a matrix of any strides."""
        (depth, columns), library = right_KN.shape, library_of(right_KN.dtype)
        panels = right_KN.new_empty(library.packed_size(depth, columns))
        library.pack_factor(depth, columns, right_KN.data_ptr(), *right_KN.stride(), panels.data_ptr())
        return cls(panels, depth, columns)


def product(left_MK: Tensor, right_KN: Tensor | Packed, addend: Tensor | None = None) -> Tensor:
    """Return a product.

    Args:
        left_MK, right_KN: The factors, of any strides, or the right one packed.
        addend: A row for all rows of the product, shape (N,); None: zeros.
    """
    columns = right_KN.columns if isinstance(right_KN, Packed) else right_KN.shape[1]
    sums_MN = left_MK.new_empty(left_MK.shape[0], columns)
    write_product(sums_MN, addend, left_MK, right_KN)
    return sums_MN


def write_product(sums_MN: Tensor, addend: Tensor | None, left_MK: Tensor, right_KN: Tensor | Packed) -> None:
    """Write a product into a matrix.

    Args:
        sums_MN: The matrix, contiguous.
        addend: What is added: the matrix itself, or a row for all of its rows; None: zeros.
        left_MK, right_KN: As in ``product``.
    """
    (rows, depth), columns, library = left_MK.shape, sums_MN.shape[1], library_of(sums_MN.dtype)
    right = right_KN.panels if isinstance(right_KN, Packed) else right_KN
    assert left_MK.dtype == right.dtype == sums_MN.dtype
    assert sums_MN.is_contiguous()
    assert addend is None or addend.is_contiguous()
    if depth == 0:
        sums_MN.copy_(sums_MN.new_zeros(()) if addend is None else addend)
        return
    pitch = columns if addend is not None and addend.dim() == 2 else 0
    given = address(addend), pitch, rows, depth, columns, left_MK.data_ptr(), *left_MK.stride()
    if isinstance(right_KN, Packed):
        library.packed_product(*given, right.data_ptr(), sums_MN.data_ptr())
        return
    memory = sums_MN.new_empty(min(depth, DEPTH) * (min(columns, BLOCK) + WIDEST))
    library.product(*given, right.data_ptr(), *right.stride(), address(memory), sums_MN.data_ptr())


@contextmanager
def products_in_c(wanted: bool) -> Iterator[None]:
    """Return a context in which layers that can compute their products in C do so.

    Args:
        wanted: Whether they do: the engine is ``native``.
    """
    token = _IN_C.set(wanted)
    try:
        yield
    finally:
        _IN_C.reset(token)


def wanted_in_c() -> bool:
    """Whether ``products_in_c`` is in effect."""
    return _IN_C.get()


def in_c(inputs: Tensor) -> bool:
    """Whether products of these inputs, rows of a matrix, are to be computed in C. They have first derivatives only."""
    there = inputs.device.type == "cpu" and inputs.dtype in BITS and inputs.dim() > 1
    return _IN_C.get() and there and not torch.is_autocast_enabled("cpu")


def halves_in_c(inputs: Tensor) -> bool:
    """Whether such products are to be computed in C, of numbers that are rounded to bfloat16."""
    there = inputs.device.type == "cpu" and inputs.dtype == torch.float32 and inputs.dim() > 1
    asked = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return _IN_C.get() and there and asked


@cache
def library_of(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    start: list[Any] = [pointer, place]
    size: list[Any] = [place, place, place]
    matrix: list[Any] = [pointer, place, place]
    library.product.argtypes = [*start, *size, *matrix, *matrix, pointer, pointer]
    library.packed_product.argtypes = [*start, *size, *matrix, pointer, pointer]
    library.packed_size.argtypes, library.packed_size.restype = [place, place], place
    library.pack_factor.argtypes = [*size[1:], *matrix, pointer]
    return library
