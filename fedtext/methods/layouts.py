"""The layouts of the tensors that server and clients exchange: the shared ones, and those beside them.

Both layouts begin with the shared tensors, then those of the method, then those of mechanisms, which so have the same
offsets in a buffer without the ones behind them.
"""

from collections.abc import Callable, Sequence
from math import prod

from fedtext.layout import Layout
from fedtext.mechanisms.base import Mechanism, Shapes
from fedtext.methods.base import Method
from fedtext.methods.state import shapes_of

Fixes = Callable[[str], bool]


def moved(shared: Layout, fixes: Fixes) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the shared tensors that clients move, which a method's state is about."""
    return {name: shape for name, shape in shared.shapes.items() if not fixes(name)}


def extras(method: Method, shared: Layout, fixes: Fixes) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that clients send beside an update, by ``group/name``.

    Args:
        method, shared, fixes: As in ``sent``.
    """
    return shapes_of(method.extras, moved(shared, fixes))


def sent(method: Method, shared: Layout, fixes: Fixes, uplink: Sequence[Mechanism] = ()) -> Layout:
    """Return the layout of a client's update and of the tensors sent beside it.

    Args:
        method: The method, with ``extras``.
        shared: The shared tensors.
        fixes: Returns whether a tensor, by its name, is the server's alone: ``ModelConfig.fixes``.
        uplink: The mechanisms, with ``beside``.
    """
    return Layout(shared.shapes | extras(method, shared, fixes) | _of([each.beside for each in uplink]))


def coordinates(layout: Layout, fixes: Fixes) -> int:
    """Return the number of coordinates of a layout that clients send in some round.

    Args:
        layout: The layout of an update.
        fixes: As in ``sent``.
    """
    return sum(prod(shape) for name, shape in layout.shapes.items() if not fixes(name))


def received(method: Method, shared: Layout, fixes: Fixes, uplink: Sequence[Mechanism] = ()) -> Layout:
    """Return the layout of the server's broadcast.

    Args:
        method: The method; with ``sends_state`` clients receive the server's state.
        shared, fixes: As in ``sent``.
        uplink: The mechanisms, with ``asks``.
    """
    state = shapes_of(method.server_state, moved(shared, fixes)) if method.sends_state else {}
    return Layout(shared.shapes | state | _of([each.asks for each in uplink]))


def _of(each: Sequence[Shapes]) -> dict[str, tuple[int, ...]]:
    return {name: shape for shapes in each for name, shape in shapes.items()}
