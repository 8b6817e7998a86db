"""APFL (Deng et al. 2020, algorithm 1): each client mixes a personal model with the shared one."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtext.methods.base import Batch, Inference, Model
from fedtext.methods.copies import Copying, TwoCopies, personal
from fedtext.models.parts import Parts

ALPHA = "alpha_private.value"  # name of the parameter


class Mixed(TwoCopies):
    """A shared and a private model, and the weight alpha of the private one."""

    def __init__(self, parts: Parts, alpha: float) -> None:
        super().__init__(parts)
        self.alpha_private = nn.ParameterDict({"value": torch.full((1,), alpha)})


class Clamped(torch.autograd.Function):
    """A tensor clamped to [0, 1], with its own gradient unless a step along it would lead further out.

    So alpha stops at the bound, and the optimizer's memory does not grow there.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return value.clamp(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (value,) = ctx.saved_tensors
        outward = ((value >= 1) & (gradient < 0)) | ((value <= 0) & (gradient > 0))
        return torch.where(outward, torch.zeros_like(gradient), gradient)


class APFL(Copying):
    """APFL (Deng et al. 2020): each client's model is a mixture of a personal model's parameters and the shared ones.

    The shared model w is trained as by FedAvg. The personal one v_k stays on the client and is trained through the
    mixture alpha_k v_k + (1 - alpha_k) w, in which w gets no gradient. With ``adaptive`` alpha_k is trained with it:
    its gradient is <gradient of the mixture, v_k - w>, and each step ends with the nearest value in [0, 1]. The paper
    updates alpha_k once a round; here every step of the clients' optimizer does, with its momentum and weight decay.
    With training.optimizer.clip_norm one norm covers the gradients of w and of v_k.
    """

    name: Literal["apfl"] = "apfl"
    alpha: float = Field(0.5, ge=0, le=1, description="initial weight of the personal model in the mixture")
    adaptive: bool = Field(True, description="whether each client learns its own alpha")
    two_branches = True
    examplewise = True

    def network(self, parts: Parts) -> nn.Module:
        return Mixed(parts, self.alpha)

    def bounds(self, parameter: str) -> tuple[float, float] | None:
        return (0.0, 1.0) if self.adaptive and parameter == ALPHA else None

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {
            "ce_shared": cross_entropy(model(batch), batch.labels_B),
            "ce_mixture": cross_entropy(personal(model, self.share(model))(batch), batch.labels_B),
        }

    def share(self, model: Model) -> float | Tensor:
        """Return alpha_k: the client's own if ``adaptive``, else ``alpha``."""
        if not self.adaptive:
            return self.alpha
        share: Tensor = Clamped.apply(model.parameters[ALPHA])
        return share

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        """Return class probabilities: ``both`` is the mixture, ``private`` the personal model alone."""
        if inference == "both":
            return personal(model, self.share(model))(batch).softmax(1)
        return (model if inference == "shared" else personal(model))(batch).softmax(1)
