"""Classifiers whose networks are of the kinds that plug-ins bring, beside those of fedtext."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fedtext.models.base import ClassifierConfig, Embedding
from fedtext.models.batch import Batch
from fedtext.models.language import RecurrentLanguageModel, RecurrentNetwork
from fedtext.models.recurrent import RecurrentClassifier

Kind = Literal["plain", "tied", "normed", "instances", "replacing", "frozen", "fixed", "whole", "numbers", "half"]


class Layers(ClassifierConfig):
    """Two layers on the mean of a text's words, and something of a kind."""

    name: Literal["layers"] = "layers"
    embedding: Embedding = Embedding(dim=4)
    kind: Kind = Field("plain", description="what its network has beside the two layers")

    def build_encoder(self, weights: bool) -> nn.Module:
        return Encoder(self.embedding.dim, self.kind)

    def fixes(self, parameter: str) -> bool:
        return self.kind in ("fixed", "whole") and parameter == "encoder.scale"


class FixedLayers(RecurrentClassifier):
    """A model whose recurrent layers never change, as a plug-in may have one."""

    name: str = "fixed_layers"  # type: ignore[assignment]
    architecture = "gru"

    def fixes(self, parameter: str) -> bool:
        return parameter.startswith("encoder")


class TiedByHand(RecurrentLanguageModel):
    """A language model whose output layer has the table as its weight."""

    name: Literal["tied_by_hand"] = "tied_by_hand"  # type: ignore[assignment]
    architecture = "gru"
    tied: bool = Field(False, description="whether it is tied by fedtext too")
    table_last: bool = Field(False, description="whether the table follows the output layer")

    def build(self, vocabulary: int, embedding: nn.Embedding, weights: bool) -> RecurrentNetwork:
        made = RecurrentNetwork(self, vocabulary, embedding)
        made.head.weight = embedding.weight
        if self.table_last:
            del made.embedding
            made.embedding = embedding
        return made


class Encoder(nn.Module):
    def __init__(self, dim: int, kind: Kind) -> None:
        super().__init__()
        self.first, self.second, self.kind = nn.Linear(dim, dim), nn.Linear(dim, dim), kind
        self.norm = {"normed": nn.BatchNorm1d, "instances": nn.InstanceNorm1d}.get(kind, nn.Identity)(dim)
        if kind == "instances":
            self.norm = nn.InstanceNorm1d(1, track_running_stats=True)
        if kind == "tied":
            self.second.weight = self.first.weight
        if kind in ("frozen", "fixed"):
            self.scale = nn.Parameter(torch.full((dim,), 2.0), requires_grad=False)
        if kind in ("numbers", "whole"):
            self.scale = nn.Parameter(torch.ones(dim, dtype=torch.int64), requires_grad=False)
        if kind == "half":
            self.scale = nn.Parameter(torch.ones(dim, dtype=torch.bfloat16))
        if kind == "replacing":
            self.register_buffer("scale", torch.ones(dim))

    def forward(self, embedding: nn.Embedding, batch: Batch) -> Tensor:
        vectors_BTD = embedding(batch.tokens_BT)
        past_BT = torch.arange(vectors_BTD.shape[1]) >= batch.lengths_B[:, None]
        mean_BD = vectors_BTD.masked_fill(past_BT[:, :, None], 0).sum(1) / batch.lengths_B[:, None]
        features_BD = self.second(torch.tanh(self.first(mean_BD)))
        if self.kind == "replacing" and self.training:
            self.scale = self.scale + 1
        if hasattr(self, "scale"):
            features_BD = features_BD * self.scale
        if self.kind == "instances":
            return self.norm(features_BD[:, None])[:, 0]
        return self.norm(features_BD)
