"""ASP-MTL: Adversarial Shared-Private Multi-Task Learning (Liu et al. 2017; ``ASP.`` in the KTEPS paper). All texts are
in one place, and a client is a task.

Legend: B batch, F features, C classes, K tasks.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from fedtext.methods.base import Batch, Inference, Method, Model
from fedtext.models.parts import Parts

EQUAL = 1e-6  # distance of a text's features from their mean that is rounding, in units of their length


class Outputs(NamedTuple):
    """The outputs of ``Tasks`` for a batch."""

    logits_BC: Tensor
    shared_BF: Tensor
    private_BF: Tensor
    tasks_BK: Tensor  # the discriminator's logits


class Tasks(nn.Module):
    """A table and an encoder for all tasks, an encoder and a head for each task, and the discriminator.

    Only the encoder and head of the batch's task are computed. The discriminator is one linear layer, as in the paper.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.encoder = parts.embedding(), parts.encoder()
        self.discriminator = nn.Linear(parts.features, parts.clients)
        self.encoders = nn.ModuleList(parts.encoder() for _ in range(parts.clients))
        self.heads = nn.ModuleList(parts.head(2 * parts.features) for _ in range(parts.clients))

    def forward(self, batch: Batch) -> Outputs:
        shared_BF = self.encoder(self.embedding, batch)
        private_BF = self.encoders[batch.task](self.embedding, batch)
        logits_BC = self.heads[batch.task](torch.cat([shared_BF, private_BF], 1))
        reversed_BF = 2 * shared_BF.detach() - shared_BF  # the same values, with the gradient's sign reversed
        return Outputs(logits_BC, shared_BF, private_BF, self.discriminator(reversed_BF))


class ASPMTL(Method):
    """ASP-MTL (Liu et al. 2017): multi-task learning on pooled texts, with an adversarial shared encoder.

    The objective is cross-entropy + adv * adversarial loss + diff * orthogonality penalty, on batches of one task each.
    The discriminator learns to predict the task from the shared features, and these learn through the reversed gradient
    to prevent it. A batch updates only the encoder and head of its own task: those of other tasks, and their optimizer
    state, do not change.

    The penalty depends on S^T P (F x F), where S and P are the shared and the private features, a row for each text.
    The paper has ||S^T P||_F^2, the sum of its squared entries, without scaling S and P. As in public implementations,
    both are centred and their rows scaled to length one, so that the penalty does not depend on the scale of the
    features, and the mean of the squared entries is used: ||S^T P||_F^2 / F^2.

    Ag is the accuracy of each client's own task, as in the KTEPS paper's tables.
    """

    name: Literal["asp_mtl"] = "asp_mtl"
    pooled = True
    separates = True
    adv: float = Field(0.05, ge=0, description="weight of the adversarial loss, the paper's lambda")
    diff: float = Field(0.01, ge=0, description="weight of the orthogonality penalty, the paper's gamma")
    penalty: Literal["mean", "sum"] = Field(
        "mean", description="mean (as in public implementations) or sum of the squared entries of S^T P (F x F)"
    )

    def network(self, parts: Parts) -> nn.Module:
        return Tasks(parts)

    def task_of(self, parameter: str) -> int | None:
        part, _, rest = parameter.partition(".")
        return int(rest.partition(".")[0]) if part in ("encoders", "heads") else None

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        made: Outputs = model(batch)
        terms = {"ce": cross_entropy(made.logits_BC, batch.labels_B)}
        if self.adv:
            task_B = torch.full_like(batch.labels_B, batch.task)
            terms["adversarial"] = cross_entropy(made.tasks_BK, task_B)
        if self.diff:
            terms["orthogonality"] = orthogonality(made.shared_BF, made.private_BF, self.penalty)
        return terms

    @property
    def weights(self) -> Mapping[str, float]:
        return {"adversarial": self.adv, "orthogonality": self.diff}

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        return model(batch).logits_BC.softmax(1)


def orthogonality(shared_BF: Tensor, private_BF: Tensor, penalty: Literal["mean", "sum"] = "mean") -> Tensor:
    """Compute the mean (or sum) of the squared entries of S^T P (F x F), for centred features with rows of length one.

    It is 0 for a single text, and for texts whose features are equal up to rounding.

    Args:
        shared_BF: Shared features S.
        private_BF: Private features P.
        penalty: ``mean`` or ``sum``.
    """
    s_BF, p_BF = (normalize(_deviations(features), dim=1) for features in (shared_BF, private_BF))
    total = ((s_BF @ s_BF.T) * (p_BF @ p_BF.T)).sum()  # = Tr(S S^T P P^T), of B x B instead of F x F
    return total if penalty == "sum" else total / (s_BF.shape[1] * p_BF.shape[1])


def _deviations(features_BF: Tensor) -> Tensor:
    """Return features less their mean, and 0 where that is only rounding, whose direction would mean nothing."""
    centred_BF = features_BF - features_BF.mean(0)
    rounding_B1 = EQUAL * features_BF.detach().norm(dim=1, keepdim=True)
    return centred_BF.masked_fill(centred_BF.detach().norm(dim=1, keepdim=True) <= rounding_B1, 0)
