"""Engine native: the steps of training/tables.py on the rows of a batch, in C (training/rows.c)."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtext.runtime.compiled import compiled
from fedtext.training.tables import TouchedRows

SOURCE = Path(__file__).with_name("rows.c")


@cache
def _functions(dtype: torch.dtype) -> tuple[Any, Any]:
    """Return fetch and step of training/rows.c for a type of numbers."""
    library, place, pointer = compiled(SOURCE), ctypes.c_int64, ctypes.c_void_p
    kind, real = {torch.float32: ("float", ctypes.c_float), torch.float64: ("double", ctypes.c_double)}[dtype]
    fetch, step = (getattr(library, f"{name}_{kind}") for name in ("fetch", "step"))
    fetch.argtypes = [place, place, *[pointer] * 6]
    step.argtypes = [place, place, *[pointer] * 3, real, *[pointer] * 4]
    return fetch, step


class NativeRows(TouchedRows):
    """``TouchedRows`` that reads and writes each row once."""

    def _fetch(self, rows: Tensor, missed: Tensor) -> Tensor:
        table_ND = self.stack.table_ND
        fetched_UD = table_ND.new_empty(len(rows), table_ND.shape[1])
        operands = rows, missed, self.move_K1, table_ND, self.velocity_ND, fetched_UD
        _functions(table_ND.dtype)[0](*fetched_UD.shape, *(tensor.data_ptr() for tensor in operands))
        return fetched_UD

    def _move(self, grad_UD: Tensor) -> None:
        table_ND, grad_UD = self.stack.table_ND, grad_UD.contiguous()
        before = (tensor.data_ptr() for tensor in (self.rows, self.missed, self.decay_K1))
        after = (tensor.data_ptr() for tensor in (grad_UD, self.fetched, table_ND, self.velocity_ND))
        _functions(table_ND.dtype)[1](*grad_UD.shape, *before, self.lr, *after)
