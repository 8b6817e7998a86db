"""PFL-DA: Private Federated Learning with Domain Adaptation (Peterson et al. 2019; ``PFL.`` in the KTEPS paper).

Legend: B batch, F features, C classes.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, nll_loss

from fedtext.methods.base import Batch, Inference, Method, Model
from fedtext.models.parts import Parts


class TwoModels(nn.Module):
    """A shared model M_s and a private model M_p, each with its own table, and the gate.

    It returns logits_BC of both models, and the gate's logit_B.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.encoder, self.head = parts.embedding(), parts.encoder(), parts.head()
        self.embedding_private, self.encoder_private = parts.embedding(), parts.encoder()
        self.head_private, self.gate_private = parts.head(), nn.Linear(parts.features, 1)
        nn.init.zeros_(self.gate_private.weight)  # initially both models have the same weight
        nn.init.zeros_(self.gate_private.bias)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        o_s_BF = self.encoder(self.embedding, batch)
        o_p_BF = self.encoder_private(self.embedding_private, batch)
        return self.head(o_s_BF), self.head_private(o_p_BF), self.gate_private(o_p_BF).squeeze(1)


class PFLDA(Method):
    """PFL-DA (Peterson et al. 2019): a shared and a private model whose predictions are mixed by a learned gate.

    The prediction is alpha(x) M_s(x) + (1 - alpha(x)) M_p(x), a mixture of class probabilities, with alpha(x) =
    sigmoid(w . x + b). The objective is its cross-entropy, to which that of M_s can be added: with the mixture alone,
    M_p may learn everything and M_s nothing. Texts differ in length, so the x of the gate are features of the private
    encoder: they do not change when a round brings a new shared model, and the gate's gradient does not reach shared
    parameters.
    """

    name: Literal["pfl_da"] = "pfl_da"
    shared_loss: float = Field(0.0, ge=0, description="weight of the shared model's own cross-entropy")
    two_branches = True

    def network(self, parts: Parts) -> nn.Module:
        return TwoModels(parts)

    def private(self, parameter: str) -> bool:
        return parameter.partition(".")[0].endswith("_private")

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        g_s_BC, g_p_BC, gate_B = model(batch)
        terms = {"ce": nll_loss(mixture(g_s_BC, g_p_BC, gate_B), batch.labels_B)}
        if self.shared_loss:
            terms["ce_shared"] = cross_entropy(g_s_BC, batch.labels_B)
        return terms

    @property
    def weights(self) -> Mapping[str, float]:
        return {"ce_shared": self.shared_loss}

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        g_s_BC, g_p_BC, gate_B = model(batch)
        if inference == "both":
            return mixture(g_s_BC, g_p_BC, gate_B).exp()
        return (g_s_BC if inference == "shared" else g_p_BC).softmax(1)


def mixture(g_s_BC: Tensor, g_p_BC: Tensor, gate_B: Tensor) -> Tensor:
    """Compute log(alpha softmax(g_s) + (1 - alpha) softmax(g_p)) with alpha = sigmoid(gate), shape (B, C).

    Args:
        g_s_BC: Logits of the shared model.
        g_p_BC: Logits of the private model.
        gate_B: Logits of alpha, the weight of the shared model.
    """
    shared_BC = logsigmoid(gate_B)[:, None] + g_s_BC.log_softmax(1)
    return torch.logaddexp(shared_BC, logsigmoid(-gate_B)[:, None] + g_p_BC.log_softmax(1))
