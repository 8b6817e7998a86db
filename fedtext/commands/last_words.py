"""The message of a command that ends without one: it was killed, or Ray has ended it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

# It reads a pipe until the command closes it, by ending if not before. "." means that there is no message. A display
# that was left open has hidden the cursor.
_WATCH = """
import sys
told = sys.stdin.read()
if not told.endswith("."):
    cursor = "\\x1b[?25h" * sys.stderr.isatty()
    sys.stderr.write(f"{cursor}error: {told or sys.argv[1]}; {sys.argv[2]}\\n")
"""
KILLED = "this command was killed, or Ray, whose process on this machine or head has died, has ended it"


class LastWords:
    """Another process, which prints a message if this one ends without one."""

    def __init__(self, again: str) -> None:
        """Start the process.

        Args:
            again: How the command is continued.
        """
        argv = [sys.executable, "-I", "-S", "-c", _WATCH, KILLED, again]
        # A session of its own: Ctrl-C in a terminal goes to the command.
        self._watch = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, text=True
        )

    def end(self, why: str) -> NoReturn:
        """End this process at once, with exit status 1 and this sentence: Ray can no longer be used."""
        self._tell(why)
        os._exit(1)

    def close(self) -> None:
        """End the other process, which prints nothing."""
        self._tell(".")
        self._watch.wait()

    def _tell(self, what: str) -> None:
        assert self._watch.stdin is not None
        with suppress(OSError):
            self._watch.stdin.write(what)
            self._watch.stdin.close()


@contextmanager
def last_words(again: str) -> Iterator[LastWords]:
    """Have a message printed if this process ends in the block, unless by an exception that is reported.

    Args:
        again: How the command is continued.
    """
    words = LastWords(again)
    try:
        yield words
    except SystemExit:  # of a signal that asks to end, which is not reported
        raise
    except BaseException:
        words.close()
        raise
    else:
        words.close()
