"""Engine native: the index arithmetic of a batch of one client, in C (training/batches.c).

Legend: N texts of the client, B of the batch, R rows of its table, T the most tokens of a text, S tokens of all texts,
U distinct words, K directions, P = K x S packed rows.
"""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.models.batch import Words
from fedtext.models.packing import Ints, Packing
from fedtext.runtime.compiled import array_address, compiled

SOURCE, CPU = Path(__file__).with_name("batches.c"), torch.device("cpu")


@cache
def _library() -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, torch.float32), ctypes.c_int64, ctypes.c_void_p
    library.number.argtypes = [place, place, *[pointer] * 3, place, place, *[pointer] * 4]
    library.number.restype = place
    library.arrange.argtypes = [place, place, place, *[pointer] * 6]
    return library


def numbered(tokens_NT: NDArray[np.int32], chosen_B: Ints, lengths_B: Ints, number_R: Ints) -> tuple[Ints, Ints, Ints]:
    """Number the words of a batch in ascending order.

    Args:
        tokens_NT: The client's texts, padded.
        chosen_B: Those of the batch.
        lengths_B: The number of tokens of each that are used.
        number_R: Zeros, which are changed and restored.

    Returns:
        words_U, the number of each token as numbers_BT, with 0 as padding, and the same as numbers_S, text after text.
    """
    most, tokens = int(lengths_B.max(initial=0)), int(lengths_B.sum())
    words_S, numbers_S = np.empty(tokens, np.int64), np.empty(tokens, np.int64)
    numbers_BT = np.empty((len(chosen_B), most), np.int64)
    inputs = tokens_NT, np.ascontiguousarray(chosen_B), lengths_B
    found = _library().number(
        len(chosen_B),
        tokens_NT.shape[1],
        *map(array_address, inputs),
        len(number_R),
        most,
        *map(array_address, (number_R, words_S, numbers_BT, numbers_S)),
    )
    return words_S[:found], numbers_BT, numbers_S


def arranged(numbers_BT: Ints, lengths_B: Ints, directions: int) -> Words:
    """Arrange the texts of a batch for a recurrent layer.

    Args:
        numbers_BT: Indices of the words of each text.
        lengths_B: Lengths of the texts, all at least 1.
        directions: K.
    """
    (texts, most), tokens = numbers_BT.shape, int(lengths_B.sum())
    order_B, starts_T = np.empty(texts, np.int64), np.empty(most + 1, np.int64)
    word_S, source_P = np.empty(tokens, np.int64), np.empty(directions * tokens, np.int64)
    arrays = lengths_B, numbers_BT, order_B, starts_T, word_S, source_P
    _library().arrange(texts, most, directions, *map(array_address, arrays))
    sizes_T = np.diff(starts_T).tolist()
    packing = Packing(directions, lengths_B[None], order_B[None], sizes_T, starts_T, CPU, "native")
    return Words(None, torch.from_numpy(word_S), torch.from_numpy(source_P), packing)
