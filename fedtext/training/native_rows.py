"""Engine native: the steps of training/tables.py on the rows of a batch, in C (training/rows.c)."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtext.models.packing import Ints
from fedtext.runtime.compiled import array_address, compiled
from fedtext.training.config import BETAS, EPSILON, Adam, AdamW
from fedtext.training.stack import Stack
from fedtext.training.tables import StatefulTables, TouchedRows, batch_rows, leaf

SOURCE = Path(__file__).with_name("rows.c")


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    real = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}[dtype]
    batch: list[Any] = [place, place, place, *[pointer] * 3]
    library.fetch.argtypes = [*batch, place, *[pointer] * 5]
    library.step.argtypes = [*batch, pointer, pointer, real, *[pointer] * 4]
    library.finish.argtypes = [*[place] * 4, pointer, place, *[pointer] * 4]
    library.adam.argtypes = [place, place, pointer, place, place, pointer, *[real] * 7, *[pointer] * 4]
    return library


class NativeRows(TouchedRows):
    """``TouchedRows`` that reads and writes each row once."""

    def begin(self, clients: range, words: Sequence[Ints]) -> Tensor:
        self.rows = batch_rows(self.stack, clients, words)
        self._look_ahead_of(clients)
        table_ND, self.missed_U = self.stack.table_ND, np.empty(len(self.rows), np.int64)
        self.fetched = table_ND.new_empty(len(self.rows), table_ND.shape[1])
        _library(table_ND.dtype).fetch(
            *self._batch(clients),
            len(self.decay_K1) - 2,
            self.move_K1.data_ptr(),
            table_ND.data_ptr(),
            self.velocity_ND.data_ptr(),
            array_address(self.missed_U),
            self.fetched.data_ptr(),
        )
        return leaf(self.fetched, clients)

    def step(self, clients: range, grad: Tensor) -> None:
        table_ND, grad = self.stack.table_ND, grad.contiguous()
        _library(table_ND.dtype).step(
            *self._batch(clients),
            array_address(self.missed_U),
            self.decay_K1.data_ptr(),
            self.lr,
            grad.data_ptr(),
            self.fetched.data_ptr(),
            table_ND.data_ptr(),
            self.velocity_ND.data_ptr(),
        )
        self.steps_C[clients.start : clients.stop] += 1

    def _batch(self, clients: range) -> tuple[int, ...]:
        """Return the first arguments of both functions: sizes, rows, and numbers of steps."""
        sizes = len(clients), len(self.rows) // len(clients), self.stack.table_ND.shape[1]
        steps = array_address(self.steps_C) + clients.start * self.steps_C.itemsize
        return *sizes, self.rows.data_ptr(), steps, self.made_N.data_ptr()

    def finish(self) -> None:
        table_ND, starts = self.stack.table_ND, self.stack.starts
        shared = self.made_N.data_ptr(), len(self.decay_K1) - 2, self.move_K1.data_ptr(), self.decay_K1.data_ptr()
        for first, last, steps in zip(starts, starts[1:], self.steps_C.tolist(), strict=False):
            changed = table_ND.data_ptr(), self.velocity_ND.data_ptr()
            _library(table_ND.dtype).finish(table_ND.shape[1], first, last, steps, *shared, *changed)


class NativeAdamRows(StatefulTables):
    """Tables trained with Adam, of which the loss receives the batch's rows.

    A step is made for all rows, but for those without a gradient so far, since Adam does not move them.

    Args:
        stack: The clients.
        config: The optimizer. With weight decay all rows move, and with state that persists all may.
        rate: Returns a client's current learning rate.
    """

    def __init__(self, stack: Stack, config: Adam, rate: Callable[[int], float]) -> None:
        super().__init__(stack, ("exp_avg", "exp_avg_sq"))
        self.decay, self.rate = config.weight_decay if isinstance(config, AdamW) else 0.0, rate
        self.start = -1 if self.decay or config.persist else -2  # of each row: see rows.c

    def reset(self) -> None:
        super().reset()
        places_N = self.stack.workspace.take("table/places", len(self.stack.table_ND), dtype=torch.int64)
        self.places_N = places_N.fill_(self.start)

    def begin(self, clients: range, words: Sequence[Ints]) -> Tensor:
        self.rows = batch_rows(self.stack, clients, words)
        return leaf(self.stack.table_ND.index_select(0, self.rows), clients)

    def step(self, clients: range, grad: Tensor) -> None:
        table_ND = self.stack.table_ND
        rows_CU = self.rows.view(len(clients), len(self.rows) // len(clients))
        grad_CUD = grad.contiguous().view(*rows_CU.shape, table_ND.shape[1])
        changed = [tensor.data_ptr() for tensor in (table_ND, *self.moments.values())]
        for client, rows_U, grad_UD in zip(clients, rows_CU, grad_CUD, strict=True):
            self.steps[client] += 1
            made, lr = int(self.steps[client]), self.rate(client)
            _library(table_ND.dtype).adam(
                *grad_UD.shape,
                rows_U.data_ptr(),
                *self.stack.starts[client : client + 2],
                self.places_N.data_ptr(),
                1 - lr * self.decay,
                1 - BETAS[0],
                BETAS[1],
                1 - BETAS[1],
                lr / (1 - BETAS[0] ** made),
                1 / sqrt(1 - BETAS[1] ** made),
                EPSILON,
                grad_UD.data_ptr(),
                *changed,
            )
