"""The input of a network: a batch of one client's texts.

Legend: B batch, T time, K features of a text, U distinct words of the batch, S token places, P packed rows
(models/packing.py).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedtext.models.packing import Packing


@dataclass(frozen=True)
class Words:
    """The batch as our own recurrent layers read it: each distinct word once.

    ``rows_U`` are the words' rows in the embedding table; None if the table that is given has been cut down to them.
    """

    rows_U: Tensor | None
    word_S: Tensor  # the word at each token place
    source_P: Tensor  # the projected word each packed row takes
    packing: Packing


class Here(NamedTuple):
    """The source of a batch, on the CPU."""

    tokens_BT: NDArray[np.int32]
    lengths_B: NDArray[np.int64]
    values_BT: NDArray[np.float32] | None


@dataclass(frozen=True)
class Batch:
    """B texts: padded token ids (rows of the table that is given with them), their true lengths, their classes.

    Beyond a text's length there is nothing to be read. ``words`` is there if the engine is not ``reference``.
    """

    tokens_BT: Tensor
    lengths_B: Tensor
    labels_B: Tensor
    words: Words | None = None
    task: int = 0  # the client whose texts they are; of mixed batches (Method.separates) that of the first text
    values_BT: Tensor | None = None  # what each token counts for; None: 1
    features_BK: Tensor | None = None  # what is known of each text beside its words, if the model reads it apart
    origin: Here | None = None

    @property
    def here(self) -> Here:
        """The texts on the CPU: what they were made from, so that no GPU has to be waited for, or else read back."""
        if self.origin is not None:
            return self.origin
        values_BT = None if self.values_BT is None else self.values_BT.cpu().numpy()
        return Here(self.tokens_BT.cpu().numpy(), self.lengths_B.cpu().numpy(), values_BT)
