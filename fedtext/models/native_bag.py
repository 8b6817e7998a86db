"""Engine native: bags of words in C (models/bag.c).

Legend: B texts, S words of all texts, V rows of the table, D embedding.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.models.batch import Batch, Here
from fedtext.models.functions import first_order
from fedtext.runtime.compiled import address, addresses, compiled, places

SOURCE = Path(__file__).with_name("bag.c")


def words(here: Here) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Return the words of all texts, tokens_S, and their values_S if they have some."""
    tokens_S, values_S = here.tokens_S, None
    if tokens_S is None or here.values_BT is not None:
        there_BT = np.arange(here.tokens_BT.shape[1]) < here.lengths_B[:, None]
        tokens_S = here.tokens_BT[there_BT].astype(np.int64) if tokens_S is None else tokens_S
        values_S = None if here.values_BT is None else here.values_BT[there_BT]
    return tokens_S, values_S


def in_c(
    name: str,
    result: Tensor,
    words_S: NDArray[np.int64],
    lengths_B: NDArray[np.int64],
    values_S: NDArray[np.float32] | None,
    rows: Tensor,
) -> None:
    """Call a function of models/bag.c, which writes its result.

    Args:
        name: ``sums`` or ``spread``.
        result: What it writes: sums_BD, or the gradient of the table, zero before.
        words_S: The words of all texts.
        lengths_B: Number of words of each text.
        values_S: Value of each word; None if all are 1.
        rows: What it reads: the table, or the gradient of the sums.
    """
    rows, values = rows.contiguous(), None if values_S is None else torch.from_numpy(values_S).to(result)
    getattr(_library(result.dtype), name)(
        len(lengths_B),
        result.shape[1],
        lengths_B.ctypes.data,
        words_S.ctypes.data,
        address(values),
        rows.data_ptr(),
        result.data_ptr(),
    )


def bag_loss(
    batch: Batch,
    relu: bool,
    table_VD: Tensor,
    bias_D: Tensor | None,
    layers: Sequence[Tensor],
    grads: Sequence[Tensor | None] | None = None,
) -> float:
    """Compute the mean cross-entropy of dense layers on ReLU(sum of a text's rows + bias), and add its gradients.

    Args:
        batch: The batch.
        relu: Whether there is the ReLU.
        table_VD, bias_D, layers: The parameters, contiguous; ``layers`` are weight and bias of each.
        grads: The gradients of table (None: not wanted), bias (None if there is none) and layers; None: none wanted.
    """
    tokens_S, values_S = words(batch.here)
    values = None if values_S is None else torch.from_numpy(values_S).to(table_VD)
    labels_B, texts = batch.labels_B.contiguous(), len(batch.labels_B)
    layout = (len(layers) // 2, places(table_VD.shape[1], *map(len, layers[1::2])))
    library = _library(table_VD.dtype)
    memory = table_VD.new_empty(library.loss_memory(texts, *layout))
    found: float = library.loss(
        texts,
        batch.here.lengths_B.ctypes.data,
        tokens_S.ctypes.data,
        address(values),
        table_VD.data_ptr(),
        address(bias_D),
        relu,
        *layout,
        addresses(layers),
        labels_B.data_ptr(),
        memory.data_ptr(),
        address(grads[0]) if grads else None,
        address(grads[1]) if grads else None,
        addresses([each for each in grads[2:] if each is not None]) if grads else None,
    )
    return found


class BagLoss(torch.autograd.Function):
    """``bag_loss`` for autograd, with the same arguments; ``layers`` are arguments of their own."""

    @staticmethod
    def forward(ctx: Any, batch: Batch, relu: bool, table_VD: Tensor, bias_D: Tensor | None, *layers: Tensor) -> Tensor:
        table_VD, *kept = (tensor.contiguous() for tensor in (table_VD, *layers))
        ctx.grads = None
        if any(ctx.needs_input_grad):
            wanted = [tensor for tensor in (table_VD, bias_D, *kept) if tensor is not None]
            sizes = [tensor.numel() for tensor in wanted]
            pieces = table_VD.new_zeros(sum(sizes)).split(sizes)
            ctx.grads = [piece.view(of.shape) for piece, of in zip(pieces, wanted, strict=True)]
            if bias_D is None:
                ctx.grads.insert(1, None)
            if not ctx.needs_input_grad[2]:
                ctx.grads[0] = None
        return table_VD.new_tensor(bag_loss(batch, relu, table_VD, bias_D, kept, ctx.grads))

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        times = grad.item()
        if times == 1:
            return None, None, *ctx.grads
        return None, None, *(None if each is None else each * times for each in ctx.grads)


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    library.sums.argtypes = library.spread.argtypes = [place, place, *[pointer] * 5]
    library.loss_memory.argtypes, library.loss_memory.restype = [place, place, pointer], place
    library.loss.argtypes, library.loss.restype = [place, *[pointer] * 5, place, place, *[pointer] * 7], ctypes.c_double
    return library
