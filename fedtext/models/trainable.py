"""Whether clients can train a network: its parameters, and what a training forward leaves in it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

from torch import Tensor, nn

from fedtext.errors import NetworkError
from fedtext.layout import is_table
from fedtext.models.places import places_of

COMPARED = 4096  # elements of a buffer whose values are compared; of all of them it is known whether torch wrote them

_UNCHANGED: WeakSet[nn.Module] = WeakSet()  # networks that have been trained without a change of a buffer


def check_parameters(network: nn.Module, fixes: Callable[[str], bool]) -> None:
    """Check that all parameters of a network can be trained, but those that its model fixes.

    Args:
        network: The network.
        fixes: Whether clients neither train nor send a parameter (``ModelConfig.fixes``).

    Raises:
        NetworkError: One cannot be, or none is left.
    """
    for again, name in places_of(network).tied.items():
        if is_table(again) and not is_table(name):
            raise NetworkError(
                f"parameter {name} is the embedding table {again}, which has to come before it: give the network its "
                f"module {again.partition('.')[0]} first"
            )
    for name, parameter in network.named_parameters():
        if not parameter.is_floating_point():
            raise NetworkError(
                f"parameter {name} has the type {parameter.dtype}, and clients train and send parameters of floating "
                "point alone: make it a buffer (register_buffer)"
            )
        if not parameter.requires_grad and not fixes(name):
            raise NetworkError(
                f"parameter {name} has requires_grad=False, which clients would train and send nevertheless: let fixes "
                "of the model's class return True for it, or make it a buffer (register_buffer)"
            )
    if all(fixes(name) for name, _ in network.named_parameters()):
        raise NetworkError(
            "its class fixes every parameter, so that clients have nothing to train: let fixes return False for some"
        )


@contextmanager
def constant_buffers(network: nn.Module) -> Iterator[None]:
    """Check that the first training of a network in this process changes no buffer, such as running statistics.

    A process has one network for all of its clients, and buffers are in no update, checkpoint or saved model. Those
    that are not persistent are what a network computes once and keeps, such as a mask.

    Args:
        network: The network, which is trained in the block.

    Raises:
        NetworkError: A buffer has changed.
    """
    if network in _UNCHANGED:
        yield
        return
    before = {name: (buffer, *_content(buffer)) for name, buffer in network.named_buffers()}
    yield
    passing = {
        f"{path}.{leaf}" if path else leaf
        for path, module in network.named_modules()
        for leaf in module._non_persistent_buffers_set
    }
    for name, buffer in network.named_buffers():
        if name in passing:
            continue
        if name not in before or before[name][0] is not buffer or _differs(before[name][1:], _content(buffer)):
            path, _, leaf = name.rpartition(".")
            owner = f"{type(network.get_submodule(path)).__name__} {path}".rstrip()
            raise NetworkError(
                f"{owner} changes its buffer {leaf} while it is trained, and buffers are in no update, checkpoint or "
                "saved model: use a layer without running statistics, such as LayerNorm for BatchNorm, or "
                "register_buffer(..., persistent=False) for what follows from the sizes of a batch"
            )
    _UNCHANGED.add(network)


def _content(buffer: Tensor) -> tuple[Tensor, int]:
    """Return the first elements of a buffer, and how often torch has written to it."""
    version = 0 if buffer.is_inference() else buffer._version
    return buffer.detach().reshape(-1)[:COMPARED].clone(), version


def _differs(one: tuple[Tensor, int], other: tuple[Tensor, int]) -> bool:
    (before, version), (after, now) = one, other
    same = before.shape == after.shape and (version == now or len(before) < COMPARED)
    return not same or not bool(((before == after) | ((before != before) & (after != after))).all())
