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
    """The batch in the form of the engines ``cells`` and ``triton``: each distinct word once.

    Attributes:
        rows_U: Rows of the words in the embedding table; None if the table has only these rows.
        word_S: Index of the word at each token place.
        source_P: Index of the projected word for each packed row.
        packing: The order of the packed rows.
    """

    rows_U: Tensor | None
    word_S: Tensor
    source_P: Tensor
    packing: Packing


class Here(NamedTuple):
    """The texts of a batch on the CPU."""

    tokens_BT: NDArray[np.int32] | NDArray[np.int64]
    lengths_B: NDArray[np.int64]
    values_BT: NDArray[np.float32] | None
    tokens_S: NDArray[np.int64] | None = None  # those of all texts without padding, if they are known


@dataclass(frozen=True)
class Batch:
    """A batch of B texts.

    Attributes:
        tokens_BT: Token ids, which are rows of the client's table. Entries beyond a text's length are undefined.
        lengths_B: Number of tokens of each text.
        labels_B: Class index of each text; of a language model the number of tokens after the first that are given.
        words: The same texts for the engines ``cells`` and ``triton``; None with engine ``reference``.
        task: Index of the client whose texts they are; in mixed batches that of the first text.
        values_BT: Value of each token; None if all are 1.
        features_BK: Features of each text beside its words, if the model uses them (``ModelConfig.joins``).
        origin: The texts on the CPU, from which the batch was made.
        native: Whether the engine is ``native``.
        prompted: Whether it is for a language model, and tokens are given in some texts.
    """

    tokens_BT: Tensor
    lengths_B: Tensor
    labels_B: Tensor
    words: Words | None = None
    task: int = 0
    values_BT: Tensor | None = None
    features_BK: Tensor | None = None
    origin: Here | None = None
    native: bool = False
    prompted: bool = False

    @property
    def here(self) -> Here:
        """The texts on the CPU. Copied from the device only if ``origin`` is not given, to avoid a synchronization."""
        if self.origin is not None:
            return self.origin
        values_BT = None if self.values_BT is None else self.values_BT.cpu().numpy()
        return Here(self.tokens_BT.cpu().numpy(), self.lengths_B.cpu().numpy(), values_BT)
