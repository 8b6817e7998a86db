"""Ctrl-C while Tune runs trials."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Tune's own handler of Ctrl-C stops the trials, and then returns as if they had ended. It is replaced by ours, which
# passes the request on: Tune stops its trials on SIGUSR1 too.
REPLACED = "TUNE_DISABLE_SIGINT_HANDLER"


class Interrupted(KeyboardInterrupt):
    """Trials that were stopped by Ctrl-C, after the records and checkpoints of their completed rounds."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it, the first Ctrl-C makes Tune stop its trials, and a second one raises KeyboardInterrupt at once.

    Signals are left alone in a thread that is not the main one, and where Ctrl-C is ignored, as behind ``nohup``.

    Raises:
        Interrupted: There was a Ctrl-C, and Tune has stopped its trials.
    """
    handler, before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGUSR1)
    if threading.current_thread() is not threading.main_thread() or handler in (None, signal.SIG_IGN):
        with _replaced():
            yield
        return
    asked = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        again, asked = asked, True
        if again or signal.getsignal(signal.SIGUSR1) is before:  # Tune does not run its trials yet
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGUSR1)

    signal.signal(signal.SIGINT, interrupt)
    try:
        with _replaced():
            yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.signal(signal.SIGUSR1, before)  # Tune leaves its own there
    if asked:
        raise Interrupted


@contextmanager
def _replaced() -> Iterator[None]:
    """Within it, Tune leaves Ctrl-C alone."""
    setting = os.environ.get(REPLACED)
    os.environ[REPLACED] = "1"
    try:
        yield
    finally:
        del os.environ[REPLACED]
        if setting is not None:
            os.environ[REPLACED] = setting
