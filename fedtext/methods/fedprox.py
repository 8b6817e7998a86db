"""FedProx (Li et al. 2020, equation 2): FedAvg whose clients are held near the parameters they received."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtext.methods.base import Model
from fedtext.methods.fedavg import FedAvg
from fedtext.models.batch import Batch


class FedProx(FedAvg):
    """FedProx (Li et al. 2020): FedAvg with a proximal term that holds clients near the received parameters.

    The local objective is the mean cross-entropy plus mu/2 ||theta - theta_received||^2 over all parameters. That
    reads every row of the embedding table, so no shortcut is taken on it.

    The paper trains with SGD, where a small mu leaves a short local update nearly as it is. Adam divides each
    coordinate's gradient by its own running size: of an embedding row that a batch does not have the proximal term is
    the only gradient, and Adam makes full steps back of it, however small mu is. Under Adam mu therefore does not weigh
    the term against the cross-entropy as it does under SGD, and the embedding moves far less.
    """

    name: Literal["fedprox"] = "fedprox"  # type: ignore[assignment]
    mu: float = Field(0.01, ge=0, description="weight of the proximal term")
    reads_table = True

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        terms = super().loss(model, received, batch)
        if self.mu:
            distances = [(model.parameters[name] - received[name]).square().sum() for name in received]
            terms["proximal"] = sum(distances)  # type: ignore[assignment]
        return terms

    @property
    def weights(self) -> Mapping[str, float]:
        return {"proximal": self.mu / 2}
