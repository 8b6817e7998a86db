"""Engine native: bags of words in C (models/bag.c).

Legend: B texts, S words of all texts, V rows of the table, D embedding.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedtext.models.batch import Batch, Here
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


class BagLoss(torch.autograd.Function):
    """The mean cross-entropy of dense layers on ReLU(sum of a text's rows + bias), with its gradient.

    Its arguments are the batch, whether there is the ReLU, table_VD, bias_D or None, and weight and bias of each layer.
    """

    @staticmethod
    def forward(ctx: Any, batch: Batch, relu: bool, table_VD: Tensor, bias_D: Tensor | None, *layers: Tensor) -> Tensor:
        tokens_S, values_S = words(batch.here)
        lengths_B, values = batch.here.lengths_B, None if values_S is None else torch.from_numpy(values_S).to(table_VD)
        labels_B, texts = batch.labels_B.contiguous(), len(batch.labels_B)
        layout = len(layers) // 2, places(table_VD.shape[1], *(len(bias) for bias in layers[1::2]))
        library = _library(table_VD.dtype)
        memory = table_VD.new_empty(library.loss_memory(texts, *layout))
        wanted = [table_VD, *layers] if bias_D is None else [table_VD, bias_D, *layers]
        sizes = [tensor.numel() for tensor in wanted] if any(ctx.needs_input_grad) else []
        pieces = table_VD.new_zeros(sum(sizes)).split(sizes) if sizes else ()
        ctx.grads = [piece.view(of.shape) for piece, of in zip(pieces, wanted, strict=False)]
        if sizes and bias_D is None:
            ctx.grads.insert(1, None)
        kept = [tensor.contiguous() for tensor in (table_VD, *layers)]
        loss = library.loss(
            texts,
            lengths_B.ctypes.data,
            tokens_S.ctypes.data,
            address(values),
            kept[0].data_ptr(),
            address(bias_D),
            relu,
            *layout,
            addresses(kept[1:]),
            labels_B.data_ptr(),
            memory.data_ptr(),
            ctx.grads[0].data_ptr() if ctx.needs_input_grad[2] else None,
            address(ctx.grads[1]) if sizes else None,
            addresses(ctx.grads[2:]) if sizes else None,
        )
        return table_VD.new_tensor(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        times, grads = grad.item(), ctx.grads
        if times != 1:
            grads = [None if each is None else each * times for each in grads]
        return None, None, grads[0] if ctx.needs_input_grad[2] else None, *grads[1:]


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    library.sums.argtypes = library.spread.argtypes = [place, place, *[pointer] * 5]
    library.loss_memory.argtypes, library.loss_memory.restype = [place, place, pointer], place
    library.loss.argtypes, library.loss.restype = [place, *[pointer] * 5, place, place, *[pointer] * 7], ctypes.c_double
    return library
