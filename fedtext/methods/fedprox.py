"""FedProx (Li et al. 2020, equation 2): FedAvg with a proximal term in the clients' objective."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtext.methods.base import Model
from fedtext.methods.fedavg import FedAvg
from fedtext.models.batch import Batch


class FedProx(FedAvg):
    """FedProx (Li et al. 2020): FedAvg with a proximal term that keeps clients near the received parameters.

    The local objective is the mean cross-entropy plus mu/2 ||theta - theta_received||^2 over all parameters, including
    all rows of the embedding table.

    The paper uses SGD, with which a small mu hardly changes a short local update. Adam divides the gradient of a
    coordinate by its running size: for an embedding row that is not in the batch, the proximal term is the only
    gradient, and Adam takes full steps back, however small mu is. With Adam, mu is therefore not the relative weight of
    the term as it is with SGD, and the embedding moves far less.
    """

    name: Literal["fedprox"] = "fedprox"  # type: ignore[assignment]
    mu: float = Field(0.01, ge=0, description="weight of the proximal term")
    reads_table = True
    examplewise = True

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        terms = super().loss(model, received, batch)
        if self.mu:
            distances = [(model.parameters[name] - received[name]).square().sum() for name in received]
            terms["proximal"] = sum(distances)  # type: ignore[assignment]
        return terms

    @property
    def weights(self) -> Mapping[str, float]:
        return {"proximal": self.mu / 2}
