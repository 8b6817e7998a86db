"""The layouts of the tensors that server and clients exchange: the shared ones, and those of a method beside them.

Both layouts begin with the shared tensors, which so have the same offsets in either buffer.
"""

from fedtext.layout import Layout
from fedtext.methods.base import Method
from fedtext.methods.state import shapes_of


def extras(method: Method, shared: Layout) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that clients send beside an update, by ``group/name``."""
    return shapes_of(method.extras, shared.shapes)


def sent(method: Method, shared: Layout) -> Layout:
    """Return the layout of a client's update and of the tensors sent beside it (``Method.extras``)."""
    return Layout(shared.shapes | extras(method, shared))


def received(method: Method, shared: Layout) -> Layout:
    """Return the layout of the server's broadcast, with its state if clients receive it (``Method.sends_state``)."""
    state = shapes_of(method.server_state, shared.shapes) if method.sends_state else {}
    return Layout(shared.shapes | state)
