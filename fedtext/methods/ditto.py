"""Ditto (Li et al. 2021, algorithm 1): a personal model for each client, regularized towards the shared one."""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtext.methods.base import Batch, Inference, Model
from fedtext.methods.copies import Copying, TwoCopies, is_private, personal, private_name
from fedtext.models.parts import Parts


class Ditto(Copying):
    """Ditto (Li et al. 2021): FedAvg, and a personal model of each client, regularized towards the shared one.

    The shared model w is trained as by FedAvg. The personal model v_k is initially w and stays on the client. It
    minimises F_k(v) + lambda/2 ||v - w_received||^2. Both are trained with the same number of steps on the same
    batches. With training.optimizer.clip_norm one norm covers the gradients of both.
    """

    name: Literal["ditto"] = "ditto"
    lambda_: float = Field(0.1, ge=0, alias="lambda", description="strength of the regularization; 0: local only")
    two_branches = True
    reads_table = True
    examplewise = True

    def network(self, parts: Parts) -> nn.Module:
        return TwoCopies(parts)

    @property
    def weights(self) -> Mapping[str, float]:
        return {"proximal": self.lambda_ / 2}

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        terms = {
            "ce_shared": cross_entropy(model(batch), batch.labels_B),
            "ce_private": cross_entropy(personal(model)(batch), batch.labels_B),
        }
        if self.lambda_:
            own = {name: model.parameters[private_name(name)] for name in received if not is_private(name)}
            terms["proximal"] = torch.stack([(own[name] - received[name]).square().sum() for name in own]).sum()
        return terms

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        return (model if inference == "shared" else personal(model))(batch).softmax(1)
