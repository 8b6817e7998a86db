"""The base of functions with their own backward pass that ``torch.vmap`` maps over clients."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedtext.errors import UserError

Backward = Callable[..., Any]


class MappedFunction(Function):
    """Base of functions with ``setup_context`` and ``vmap``.

    With each call torch asks for the signature of ``forward``. It is computed once, since that takes as long as a small
    product.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]


def merged(clients: int, dim: int | None, tensor: Tensor) -> Tensor:
    """Merge the client axis of a mapped tensor with its first axis: (C, N, ...) becomes (CN, ...).

    Args:
        clients: C.
        dim: The axis of clients; None: the tensor is the same for all.
        tensor: The tensor.
    """
    stacked = tensor.expand(clients, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return stacked.flatten(0, 1)


def first_order(backward: Backward) -> Backward:
    """Decorate the backward pass of a function whose gradient cannot be differentiated.

    torch's ``once_differentiable`` raises an error in ``Tensor.backward`` only: ``torch.autograd.grad`` leaves out the
    part of a second derivative that goes through the function, without a word.

    Args:
        backward: The backward pass.

    Returns:
        One that raises UserError if a graph of the gradient is made (``create_graph=True``).
    """

    @wraps(backward)
    def once(ctx: Any, *upstream: Any) -> Any:
        if torch.is_grad_enabled():
            raise UserError(
                "its loss differentiates a gradient (create_graph=True, or torch.func.grad), and this part of the "
                "model has no second derivative: use a recurrent model, or a transformer with attention: eager, with "
                "training.engine: reference; a first derivative alone is taken by torch.autograd.grad without "
                "create_graph"
            )
        return backward(ctx, *upstream)

    return once
