"""Messages about blocks of code that take long."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def said_if_slow(seconds: float, say: Callable[[], None]) -> Iterator[None]:
    """Return a context that calls a function, in a thread, if its block takes longer than some time.

    Args:
        seconds: The time.
        say: The function.
    """
    timer = threading.Timer(seconds, say)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread can be started, and the block needs none
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
