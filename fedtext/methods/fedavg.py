"""FedAvg (McMahan et al. 2017; KTEPS paper, section 3.3): one shared model, averaged by sample counts.

FedAvg and its subclasses also accept language models (FedAtt paper, section III).
"""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn

from fedtext.methods.base import Batch, Inference, Method, Model
from fedtext.models.fused import FusedLoss
from fedtext.models.language import LanguageModel
from fedtext.models.parts import Parts, SingleBranch, whole


class FedAvg(Method):
    """FedAvg (McMahan et al. 2017): one shared model, the mean of the clients' models weighted by numbers of texts.

    Everything is shared; the local objective is the mean cross-entropy of classes (KTEPS paper, equation 5) or of next
    words.
    """

    name: Literal["fedavg"] = "fedavg"
    language = True
    examplewise = True

    def network(self, parts: Parts) -> nn.Module:
        return whole(parts)

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        if isinstance(model.network, LanguageModel):
            return {"ce": model(batch).loss}
        return {"ce": model.cross_entropy(batch)}

    def fused(self, network: nn.Module) -> FusedLoss | None:
        return network.fused() if isinstance(network, SingleBranch) else None

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        return model(batch).softmax(1)
