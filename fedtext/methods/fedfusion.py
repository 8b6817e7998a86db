"""FedFusion (Yao et al. 2019, "A Feature Fusion Approach"; ``FedFu.`` in the KTEPS paper): clients fuse the features
F_g of the received encoder with the features F_l of their own.

Legend: B batch, F features, C classes.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtext.methods.base import Batch, Inference, Model
from fedtext.methods.frozen import Frozen, WithReceived
from fedtext.models.parts import Parts


class Weighted(nn.Module):
    """gamma F_g + (1 - gamma) F_l. Initially gamma is 0: local features only."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(size))

    def forward(self, local_BF: Tensor, received_BF: Tensor) -> Tensor:
        return local_BF + self.gamma * (received_BF - local_BF)


class Mixed(nn.Linear):
    """W [F_l; F_g] + b, the paper's 1 x 1 convolution. Initially W is [1; 0]: local features only."""

    def __init__(self, features: int) -> None:
        super().__init__(2 * features, features)
        nn.init.eye_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, local_BF: Tensor, received_BF: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(torch.cat([local_BF, received_BF], 1))


class Fused(WithReceived):
    """A classifier on fused features. It returns logits_BC."""

    def __init__(self, parts: Parts, operator: str) -> None:
        super().__init__(parts)
        width = parts.features
        self.fusion = Mixed(width) if operator == "conv" else Weighted(width if operator == "multi" else 1)

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.fusion(*self.features(batch)))


class FedFusion(Frozen):
    """FedFusion (Yao et al. 2019): FedAvg with features fused from the received encoder's and the client's.

    All trained parameters are shared, including the fusion. The server's model is evaluated with F_g = F_l, both its
    own.

    In the KTEPS paper's version an embedding is private (section 5.5), which is not part of FedFusion, and would leave
    no shared model for the Ag that the paper reports; here nothing is private. The authors' code also smooths gamma on
    the server (0.9 old + 0.1 new) and reduces the learning rate by 1 % in each round; here gamma is averaged like all
    parameters.
    """

    name: Literal["fedfusion"] = "fedfusion"
    operator: Literal["multi", "single", "conv"] = Field(
        "multi", description="multi: one gamma for each feature; single: one for all; conv: a linear map of both"
    )

    def network(self, parts: Parts) -> nn.Module:
        return Fused(parts, self.operator)

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {"ce": cross_entropy(model(batch), batch.labels_B)}

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        return model(batch).softmax(1)
