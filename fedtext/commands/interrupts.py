"""Ctrl-C that arrives where an exception is lost: in a finalizer, or while the process ends."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

AGAIN_S = 0.02  # until an interrupt that a finalizer has lost is sent again


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Within it, an interrupt that a finalizer or a callback has lost is sent again, and no traceback is printed of it.

    Python prints an exception of these and goes on: the command would not end.
    """
    before, pending = sys.unraisablehook, list[threading.Timer]()

    def hook(lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))  # once the finalizer has returned
        again.daemon = True
        again.start()
        pending.append(again)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        left = [again for again in pending if again.is_alive()]
        for again in left:
            again.cancel()
    if left:  # the command has ended before it was sent again
        raise KeyboardInterrupt


def end_quietly(status: int) -> None:
    """Have the process end without tracebacks of finalizers and threads, and at once after another Ctrl-C.

    Args:
        status: The exit status after another Ctrl-C.
    """

    def begin() -> None:  # registered last, it runs first: before Ray's shutdown, or MLflow's threads, for example
        sys.unraisablehook, threading.excepthook = _drop, _drop
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda *_: os._exit(status))

    # Functions of atexit run only after threads have been joined, which may wait for a server for minutes. Those of
    # threading run before; concurrent.futures joins its own so.
    getattr(threading, "_register_atexit", atexit.register)(begin)


def _drop(raised: object) -> None:
    """Print nothing."""
