"""A plug-in: FedAvg whose clients keep the output layer near the one that they received."""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtext.methods.base import Batch, Model
from fedtext.methods.fedavg import FedAvg


class NearHead(FedAvg):
    """FedAvg whose local updates are drawn back to the received output layer."""

    name: Literal["near_head"] = "near_head"  # type: ignore[assignment]
    mu: float = Field(0.1, ge=0, description="weight of the squared distance")

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        head = [name for name in model.parameters if name.startswith("head.")]
        distance = sum(((model.parameters[name] - received[name]).square().sum() for name in head), torch.zeros(()))
        return super().loss(model, received, batch) | {"near": distance}

    @property
    def weights(self) -> Mapping[str, float]:
        return {"near": self.mu}
