"""Texts with wrong labels."""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.adversaries.base import Attack, Tensors, times
from fedtext.corpora.types import Corpus, TokenSet


class LabelFlip(Attack):
    """Adversaries train on wrong labels: class c of C becomes C - 1 - c (Fang et al. 2020, section 5.1)."""

    name: Literal["label_flip"] = "label_flip"
    boost: float = Field(1.0, gt=0, description="multiple of the update that is sent")
    reads_labels = True

    def texts(
        self, train: TokenSet, trigger: NDArray[np.int32], corpus: Corpus, draws: np.random.Generator
    ) -> TokenSet:
        return replace(train, labels_N=corpus.classes - 1 - train.labels_N)

    def send(self, delta: Tensors, draws: np.random.Generator) -> Tensors:
        return times(delta, self.boost)
