"""A step of SGD or Adam: torch's own arithmetic, without the checks of torch's optimizers."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedtext.training.config import BETAS, EPSILON, SGD, Adam, AdamW


def kinds(config: SGD | Adam) -> tuple[str, ...]:
    """Return the kinds of state that the optimizer keeps for each coordinate."""
    return ("exp_avg", "exp_avg_sq") if isinstance(config, Adam) else ("momentum_buffer",)


def advance(
    config: SGD | Adam,
    lr: float,
    parameters: list[Tensor],
    grads: list[Tensor],
    memory: Mapping[str, list[Tensor]],
    steps: list[Tensor],
) -> None:
    """Make a step of the optimizer, in place.

    Args:
        config: The optimizer.
        lr: The learning rate.
        parameters, grads: The parameters and their gradients.
        memory: The optimizer's state of each parameter, by kind.
        steps: Number of steps of each parameter (Adam).
    """
    if isinstance(config, Adam):
        torch._foreach_add_(steps, 1)
        decay = config.weight_decay if isinstance(config, AdamW) else 0.0
        fused = torch._fused_adamw_ if isinstance(config, AdamW) else torch._fused_adam_
        fused(  # the implementation of torch.optim.Adam(fused=True), without its checks
            parameters,
            grads,
            memory["exp_avg"],
            memory["exp_avg_sq"],
            [],
            steps,
            lr=lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
    else:
        torch._fused_sgd_(  # the same of torch.optim.SGD(fused=True)
            parameters,
            grads,
            memory["momentum_buffer"] if config.momentum else [],
            weight_decay=0,
            momentum=config.momentum,
            lr=lr,
            dampening=0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )
