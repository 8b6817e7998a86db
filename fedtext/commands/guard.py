"""How a command ends: its exit status, and one sentence instead of a traceback."""

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from typing import Any, TextIO

from fedtext.commands.interrupts import end_quietly, kept_interrupts
from fedtext.errors import ClientError, UserError, command_line, unwritable

Main = Callable[[Sequence[str] | None], int]
PIPE = 141  # as a shell reports a process that wrote to a closed pipe
INTERRUPTED = 130  # as a shell reports a process that Ctrl-C ended


def guarded(main: Main, again: str = "") -> Callable[[], int]:
    """Return a command that ends on an error of the user with one sentence on stderr, without a traceback.

    Args:
        main: Parses and runs; returns the exit status.
        again: How an interrupted command is continued, for the message, unless the KeyboardInterrupt says it.

    Returns:
        The command. Its exit status is that of ``main``; 2 after a UserError, or if a disk is full; 1 after a
        ClientError, or after an exception of a plug-in, whose traceback is printed before the sentence; 130 if it is
        interrupted; 141, quietly, if the reader of its output has closed the pipe.
    """

    def command() -> int:
        _have_streams()
        with redirect_stdout(_Output(sys.stdout)):
            try:
                status = ended()
            except SystemExit as ended_by:  # such as --help
                unwritten = _unwritten()
                ended_by.code = ended_by.code or unwritten
                raise
            unwritten = _unwritten()
            return status or unwritten

    def ended() -> int:
        try:
            with command_line(), kept_interrupts():
                return main(None)
        except (UserError, ClientError) as error:
            say(f"error: {error}")
            return 2 if isinstance(error, UserError) else 1
        except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
            _unwritten()
            return PIPE
        except OSError as error:
            if status := _unwritten():
                return status
            if not (sentence := unwritable(error)):
                if _of_plugin(error):
                    return 1
                raise
            say(f"error: {sentence}")
            return 2
        except Exception as error:
            if _of_plugin(error):
                return 1
            raise
        except KeyboardInterrupt as stopped:
            how = str(stopped) or again
            say(f"interrupted; {how}" if how else "interrupted")
            end_quietly(INTERRUPTED)
            return INTERRUPTED

    return command


class _Output:
    """The standard output, which remembers that it could not be written.

    Without a buffer ($PYTHONUNBUFFERED) nothing is left to write that would show it later, the exception is that of any
    file, and argparse drops it.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a text.

        Raises:
            OSError: It cannot be written.
        """
        try:
            return self.stream.write(text)
        except OSError as error:
            self.error = error
            raise


def say(sentence: str) -> None:
    """Print a sentence on stderr. The exit status is the same if that cannot be written either."""
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:  # what is left is dropped: Python would notice when the process ends, and end with status 120
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _have_streams() -> None:
    """Open the streams that this process was started without, as by a daemon, on a device that is empty.

    What a locale cannot express ends no command. A question mark is written for characters that its encoding lacks,
    such as that of "mean ± deviation" in ASCII. Bytes that it cannot read become surrogates, which ``predict`` refuses.
    """
    for name, mode, errors in (
        ("stdin", "r", "surrogateescape"),
        ("stdout", "w", "replace"),
        ("stderr", "w", "replace"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"} - {errors}:
            stream.reconfigure(errors=errors)


def _of_plugin(error: Exception) -> bool:
    """Print the traceback of an exception and a sentence if it was raised in a plug-in, and return whether it was."""
    loading = sys.modules.get("fedtext.config.loading")  # or there is no plug-in
    if not (loading and loading.line_of(error)):
        return False
    with suppress(OSError):
        traceback.print_exception(error)
    say(f"error: plugins: {loading.told(error)}")
    return True


def _unwritten() -> int:
    """Write what is left of the output.

    If that fails, the rest is dropped: Python would notice when the process ends, and print a traceback.

    Returns:
        The exit status: 0 if it is written; 141 if its reader has closed the pipe; 2, after a sentence on stderr, if it
        cannot be written for another reason, such as a disk that is full.
    """
    try:
        if isinstance(sys.stdout, _Output) and sys.stdout.error:
            raise sys.stdout.error
        sys.stdout.flush()
    except OSError as error:
        if isinstance(sys.stdout, _Output):
            sys.stdout.error = None  # it is told once
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return PIPE
        say(f"error: the standard output cannot be written: {error.strerror}")
        return 2
    return 0
