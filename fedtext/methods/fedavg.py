"""FedAvg (McMahan et al. 2017; KTEPS paper, section 3.3): one shared model, averaged by sample counts."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtext.methods.base import Batch, Inference, Method, Model
from fedtext.models.recurrent import Parts, SingleBranch


class FedAvg(Method):
    """Everything is shared; the local objective is the mean cross-entropy (KTEPS paper, equation 5)."""

    name: Literal["fedavg"] = "fedavg"

    def network(self, parts: Parts) -> nn.Module:
        return SingleBranch(parts)

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {"ce": cross_entropy(model(batch), batch.labels_B)}

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        return model(batch).softmax(1)
