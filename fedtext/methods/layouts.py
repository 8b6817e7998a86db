"""The layouts of the tensors that cross between server and clients: the shared ones, and a method's own beside them.

Both begin with the shared tensors, so that these have the same places in a buffer of either.
"""

from fedtext.layout import Layout
from fedtext.methods.base import Method
from fedtext.methods.state import shapes_of


def extras(method: Method, shared: Layout) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what a method sends beside an update, by ``group/name``."""
    return shapes_of(method.extras, shared.shapes)


def sent(method: Method, shared: Layout) -> Layout:
    """Return the layout of a client's update, with what the method sends beside it (``Method.extras``)."""
    return Layout(shared.shapes | extras(method, shared))


def received(method: Method, shared: Layout) -> Layout:
    """Return the layout of what the server sends to clients, with its state if they receive that."""
    state = shapes_of(method.server_state, shared.shapes) if method.sends_state else {}
    return Layout(shared.shapes | state)
