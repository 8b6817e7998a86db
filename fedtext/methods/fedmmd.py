"""FedMMD (Yao et al. 2018, "Two-Stream Federated Learning"; KTEPS paper, section 5.4): FedAvg with a penalty on the
distance between the distributions of the client's and the received model's features.

Legend: B batch, N = 2 B samples, F features, C classes.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtext.methods.base import Batch, Inference, Model
from fedtext.methods.frozen import Frozen, WithReceived
from fedtext.methods.hsic import narrowest, squared_distances
from fedtext.models.parts import Parts

WIDTHS = (1 / 4, 1 / 2, 1, 2, 4)  # of the five kernels, in units of the mean squared distance


class TwoStreams(WithReceived):
    """A classifier with its own and the received encoder. It returns logits_BC, and features_BF of both encoders."""

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        local_BF, received_BF = self.features(batch)
        return self.head(local_BF), local_BF, received_BF


class FedMMD(Frozen):
    """FedMMD (Yao et al. 2018): FedAvg with a penalty on how far features move from the received model's.

    Everything is shared; the local objective is the mean cross-entropy plus lambda MMD^2. The weight and the kernels
    are those of public implementations: the KTEPS paper does not state them.
    """

    name: Literal["fedmmd"] = "fedmmd"
    lambda_: float = Field(0.01, ge=0, alias="lambda", description="weight of the discrepancy")

    def network(self, parts: Parts) -> nn.Module:
        return TwoStreams(parts)

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        logits_BC, local_BF, received_BF = model(batch)
        terms = {"ce": cross_entropy(logits_BC, batch.labels_B)}
        if self.lambda_ and len(batch.labels_B) > 1:  # one text has no distribution
            terms["mmd"] = mmd(local_BF, received_BF)
        return terms

    @property
    def weights(self) -> Mapping[str, float]:
        return {"mmd": self.lambda_}

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        return model(batch)[0].softmax(1)


def mmd(local_BF: Tensor, received_BF: Tensor) -> Tensor:
    """Compute the biased estimate of the squared maximum mean discrepancy.

    It is mean k(x, x') + mean k(y, y') - 2 mean k(x, y), where k is the sum of five Gaussian kernels exp(-d^2 / b).
    Each b is a multiple of the mean squared distance between two different samples of both sides, which counts as at
    least ``hsic.narrowest``. The b and the received features are detached.
    """
    size, features_NF = len(local_BF), torch.cat([local_BF, received_BF.detach()])
    distances_NN = squared_distances(features_NF)
    mean = torch.maximum(distances_NN.detach().sum() / (2 * size * (2 * size - 1)), narrowest(features_NF))
    kernel_NN = torch.stack([torch.exp(-distances_NN / (mean * width)) for width in WIDTHS]).sum(0)
    within = kernel_NN[:size, :size].mean() + kernel_NN[size:, size:].mean()
    found: Tensor = within - kernel_NN[:size, size:].mean() - kernel_NN[size:, :size].mean()
    found = found + (found.clamp(min=0) - found).detach()  # not negative by rounding; the gradient is as before
    return found.to(local_BF.dtype)
