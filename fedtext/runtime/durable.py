"""Files and folders that survive the death of their writer and the loss of power: as a whole, or not at all."""

import errno
import os
from contextlib import suppress
from pathlib import Path

_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # by filesystems that cannot flush a folder


def write(file: Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write a file at once: a reader finds the old or the new content, whenever the writer dies or the power fails.

    Args:
        file: The file. Its folder exists.
        content: Its content; a text is written in UTF-8.
        mode: Its mode, of which the process's mask is taken away. No one else can ever read a file of mode 0600.

    Raises:
        OSError: It cannot be written. An earlier file is left unchanged, and no draft is left.
    """
    draft = file.with_name(f".{file.name}-{os.getpid()}.draft")
    try:
        draft.unlink(missing_ok=True)
        create(draft, content.encode() if isinstance(content, str) else content, mode)
        os.replace(draft, file)
        sync(file.parent)
    except BaseException:
        with suppress(OSError):  # there may be no such folder
            draft.unlink()
        raise


def create(file: Path, content: bytes, mode: int = 0o666) -> None:
    """Create a file, and wait until the disk has it. The entry in its folder is not waited for: see ``sync``.

    Args:
        file: The file. There must be none yet.
        content: Its content.
        mode: Its mode, of which the process's mask is taken away.
    """
    with open(file, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync(folder: Path) -> None:
    """Wait until the disk has the entries of a folder: what was created, renamed and removed in it."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(opened)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, if they are missing, and wait until the disk has them."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        sync(each.parent)
