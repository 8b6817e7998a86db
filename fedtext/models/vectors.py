"""A classifier on averaged or concatenated word vectors, and on the features of a text (RR-LDP paper).

Legend: B batch, T places, D embedding, F features of the encoder, K features of a text beside its words.
"""

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from fedtext.models.bag import BagEncoder, Dense, with_features
from fedtext.models.base import DENSE, ClassifierConfig, DenseInit, Embedding, Widths
from fedtext.models.batch import Batch


class VectorClassifier(ClassifierConfig):
    """Averaged or concatenated word vectors through dense layers (RR-LDP paper).

    RR-LDP paper, tables 8 to 10: the input of the dense layers consists of the word vectors of a text, averaged or
    concatenated, and of its features, if the corpus has some. Without hidden layers it is logistic regression. With
    ``training.optimizer.embedding_lr: 0`` the vectors do not change.
    """

    name: Literal["vectors"] = "vectors"
    embedding: Embedding = Embedding(dim=300)
    pooling: Literal["mean", "flat"] = Field(
        "mean", description="how the vectors of a text are combined; flat: concatenated, shorter texts padded by zeros"
    )
    words: PositiveInt | Literal["all"] = Field(
        "all", description="number of words of a text that are used; flat needs a number"
    )
    order: Literal["common", "first"] = Field(
        "common",
        description="words that are used, in this order; common: the most frequent of the text, each once; first: the "
        "first ones; without effect with words: all",
    )
    hidden: Widths = Field((100, 50, 25), description="units of each hidden layer; []: none")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the input of the dense layers")
    dense_init: DenseInit = Field("torch", description=DENSE)

    padding = False
    joins = True

    @model_validator(mode="after")
    def _counted(self) -> "VectorClassifier":
        if self.pooling == "flat" and self.words == "all":
            raise ValueError("pooling: flat concatenates `words` vectors: set words, to 100 for example")
        if self.words == "all" and self.order != "common":
            raise ValueError(
                f"order: {self.order} selects words of a text, and words: all uses every one: set words to a number, "
                "or leave order out"
            )
        return self

    @property
    def second_order(self) -> bool:
        return False

    @property
    def as_sets(self) -> bool:
        return self.pooling == "mean"

    @property
    def counting(self) -> Literal["shares"]:
        return "shares"

    @property
    def choice(self) -> tuple[int, Literal["common", "first"]] | None:
        return None if self.words == "all" else (self.words, self.order)

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        return self.hidden

    @property
    def layers_of(self) -> Callable[..., nn.Sequential]:
        return Dense

    def width(self, features: int) -> int:
        side_by_side = self.words if self.pooling == "flat" and self.words != "all" else 1
        return side_by_side * self.embedding.dim + features

    def build_encoder(self, weights: bool) -> nn.Module:
        if self.pooling == "flat" and self.words != "all":
            return FlatEncoder(self.words, self.dropout)
        return BagEncoder(self.embedding.dim, self.dropout, bias=False, relu=False)


class FlatEncoder(nn.Module):
    """An encoder that concatenates the vectors of a text's first ``words`` tokens, padded by zeros, and its features.

    Its output is features_BF, with F = words x D + K.
    """

    def __init__(self, words: int, dropout: float) -> None:
        super().__init__()
        self.words, self.dropout = words, nn.Dropout(dropout)

    def forward(self, table: nn.Embedding, batch: Batch) -> Tensor:
        tokens_BT = batch.tokens_BT[:, : self.words]
        places_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        there_BT = places_T < batch.lengths_B[:, None]
        vectors_BTD = embedding(tokens_BT * there_BT, table.weight) * there_BT[..., None]
        padded_BTD = pad(vectors_BTD, (0, 0, 0, self.words - len(places_T)))
        return self.dropout(with_features(padded_BTD.flatten(1), batch))
