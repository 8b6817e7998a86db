"""The base of functions with their own backward pass that ``torch.vmap`` maps over clients."""

import inspect
from typing import Any

from torch import Tensor
from torch.autograd import Function


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
