"""FedAvg (McMahan et al. 2017; KTEPS paper, section 3.3): one shared model, averaged by sample counts."""

from collections.abc import Mapping
from typing import Any, Literal

from fedtext.methods.base import Batch, Inference, Method, Model, Module, Parts, Tensor


def logits(network: Any, batch: Batch) -> Tensor:
    """The plain classifier, equations 1-4: BxC."""
    return network.head(network.encoder(network.embedding, batch))


class FedAvg(Method):
    """Everything is shared; the local objective is the mean cross-entropy (KTEPS paper, equation 5)."""

    name: Literal["fedavg"] = "fedavg"

    def network(self, parts: Parts) -> Module:
        return parts.network(logits, embedding=parts.embedding(), encoder=parts.encoder(), head=parts.head())

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {"ce": batch.cross_entropy(model(batch))}

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        return model(batch).softmax(1)
