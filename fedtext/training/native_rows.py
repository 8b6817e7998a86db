"""Engine native: the steps of training/tables.py on the rows of a batch, in C (training/rows.c)."""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from fedtext.runtime.compiled import compiled
from fedtext.training.tables import TouchedRows

SOURCE = Path(__file__).with_name("rows.c")


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    real = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}[dtype]
    library.fetch.argtypes = [place, place, *[pointer] * 6]
    library.step.argtypes = [place, place, *[pointer] * 3, real, *[pointer] * 4]
    return library


class NativeRows(TouchedRows):
    """``TouchedRows`` that reads and writes each row once."""

    def _fetch(self, rows: Tensor, missed: Tensor) -> Tensor:
        table_ND = self.stack.table_ND
        fetched_UD = table_ND.new_empty(len(rows), table_ND.shape[1])
        operands = rows, missed, self.move_K1, table_ND, self.velocity_ND, fetched_UD
        _library(table_ND.dtype).fetch(*fetched_UD.shape, *(tensor.data_ptr() for tensor in operands))
        return fetched_UD

    def _move(self, grad_UD: Tensor) -> None:
        table_ND, grad_UD = self.stack.table_ND, grad_UD.contiguous()
        before = (tensor.data_ptr() for tensor in (self.rows, self.missed, self.decay_K1))
        after = (tensor.data_ptr() for tensor in (grad_UD, self.fetched, table_ND, self.velocity_ND))
        _library(table_ND.dtype).step(*grad_UD.shape, *before, self.lr, *after)
