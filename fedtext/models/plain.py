"""Whether a module does what its class says, so that a function may compute its outputs without calling it."""

from typing import TypeGuard, TypeVar

from torch import nn

Kind = TypeVar("Kind", bound=nn.Module)


def unhooked(module: nn.Module) -> bool:
    """Whether calling a module calls nothing besides its ``forward``."""
    return not (
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def is_plain(module: nn.Module, kind: type[Kind]) -> TypeGuard[Kind]:
    """Whether a module is exactly of this class, and calling it calls the ``forward`` of the class alone."""
    return type(module) is kind and "forward" not in vars(module) and unhooked(module)


def looks_up(embedding: nn.Module) -> bool:
    """Whether an embedding only reads rows of its table, each for itself."""
    if not is_plain(embedding, nn.Embedding):
        return False
    return embedding.padding_idx is None and embedding.max_norm is None and not embedding.scale_grad_by_freq
