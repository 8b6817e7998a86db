"""Errors with a message for the user, which commands print as one sentence.

The exit status of a command is 2 after a UserError, and 1 if training failed.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST = 1000  # characters of a line of a message
_REMEDIES = {
    errno.ENOSPC: "free space on that disk, or choose another folder",
    errno.EDQUOT: "free space within the quota, or choose another folder",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or choose another folder",
    errno.ENOTDIR: "a part of that path is a file: choose another folder",
    errno.EEXIST: "a part of that path is a file: choose another folder",
}


class UserError(ValueError):
    """An invalid request. The message says what is wrong, where, and what to do.

    A message can quote what it was given: characters that a terminal would act on are escaped, and the middle of a line
    is left out if it is longer than anybody reads.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__("\n".join(map(_readable, str(message).split("\n"))))


def escaped(line: str) -> str:
    """Return a text on one line, without characters that a terminal would act on."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


def _readable(line: str) -> str:
    return _shortened(escaped(_shortened(line)))


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"


class OwnershipLostError(UserError):
    """Another command has continued the run, on this machine or another: this one has to stop."""


class NetworkError(UserError):
    """A network that no client can train."""


class ClientError(RuntimeError):
    """A failure of a client's computation: its loss is not finite, or its code raised an exception.

    Attributes:
        client: Name of the client.
        round: Number of the round.
        cause: What went wrong.
    """

    def __init__(self, client: str, round_: int, cause: str) -> None:
        super().__init__(client, round_, cause)  # positional, so that it survives pickling
        self.client, self.round, self.cause = client, round_, cause

    def __str__(self) -> str:
        return f"client {self.client} failed in round {self.round}: {self.cause}"


class _Caller:
    on_command_line = False
    prefix = "python -m platform."


@contextmanager
def command_line() -> Iterator[None]:
    """Let messages name options of a command, ``--data FOLDER``, in this block, and not arguments, ``data=FOLDER``."""
    before, _Caller.on_command_line = _Caller.on_command_line, True
    try:
        yield
    finally:
        _Caller.on_command_line = before


def option(name: str, value: str = "") -> str:
    """Return an option or argument in the form in which the caller gives it, for messages.

    Args:
        name: Name of the argument in Python.
        value: Its value, if the message has one.
    """
    if _Caller.on_command_line:
        return f"--{name.replace('_', '-')} {value}".rstrip()
    return f"{name}={value}" if value else name


def place_of_overrides() -> str:
    """Return where ``key=value`` words were given, for messages: on the command line, or as an argument."""
    return "command line" if _Caller.on_command_line else "overrides"


def called_by(prefix: str) -> None:
    """Let messages name commands in the form in which the user calls them.

    Args:
        prefix: What stands before the name of a command: ``fedtext `` or ``python -m platform.``, the default.
    """
    _Caller.prefix = prefix


def spelled(command: str) -> str:
    """Return a command as the user calls commands: ``fedtext sweep`` or ``python -m platform.sweep``."""
    return f"{_Caller.prefix}{command}"


def unwritable(error: OSError) -> str:
    """Return a message if a file cannot be written because a disk is full or read-only; empty for any other error."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return ""
    return f"{error.filename or 'a file'} cannot be written: {error.strerror}"


@contextmanager
def writing(path: Path, what: str = "", then: str = "") -> Iterator[None]:
    """Turn an OSError raised in the block into a UserError.

    Args:
        path: The file or folder that the block writes.
        what: Beginning of the message, such as "storage".
        then: End of the message.

    Raises:
        UserError: The block raised OSError.
    """
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "make it writable, or choose another folder")
        name = f"{what}: {path}" if what else str(path)
        raise UserError(
            f"{name} cannot be written ({error.strerror or error}): {remedy}{f'; {then}' if then else ''}"
        ) from error
