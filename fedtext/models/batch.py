"""What a network is given: a batch of one client's texts.

Legend: B batch, T time, U distinct words of the batch, S token places, P packed rows (models/packing.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # as in methods/base.py
    from torch import Tensor

    from fedtext.models.packing import Packing


@dataclass(frozen=True)
class Words:
    """The batch as the engine ``cells`` reads it: each distinct word once.

    ``rows_U`` are the words' rows in the embedding table; None if the table that is given has been cut down to them.
    """

    rows_U: Tensor | None
    word_S: Tensor  # the word at each token place
    source_P: Tensor  # the projected word each packed row takes
    packing: Packing


@dataclass(frozen=True)
class Batch:
    """B texts: padded token ids (rows of the table that is given with them), their true lengths, their classes.

    Beyond a text's length there is nothing to be read. ``words`` is there if the engine is ``cells``.
    """

    tokens_BT: Tensor
    lengths_B: Tensor
    labels_B: Tensor
    words: Words | None = None

    def cross_entropy(self, logits_BC: Tensor) -> Tensor:
        """-log softmax at the true classes, the mean of the texts."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits_BC, self.labels_B)
