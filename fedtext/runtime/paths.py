"""Paths and URIs as they are given in keys, options and variables: what each is, and what is refused."""

import errno
import re
from pathlib import Path

from fedtext.errors import UserError

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file")
_URI = re.compile(rf"({'|'.join(SCHEMES)})://", re.IGNORECASE)


def is_uri(name: str | Path) -> bool:
    """Whether a name is the URI of a filesystem of pyarrow."""
    return bool(_URI.match(str(name)))


def with_slashes(name: str | Path) -> str:
    """Return a name that may be a URI with the slash that ``Path("s3://bucket")`` has lost."""
    return re.sub(r"(?<=\w:)/+", "//", str(name), count=1)


def check_path(name: str | Path, what: str) -> None:
    """Refuse an empty path, which would be the working folder, and one that is meant as a URI, which would become a
    folder of that name on this machine.

    Args:
        name: The path, or a URI that ``is_uri``.
        what: The key or option that has it; the message begins with it.

    Raises:
        UserError: It is empty, or begins as a URI does, and is none.
    """
    if not str(name):  # such as "$UNSET"
        raise UserError(f"{what}: '' is no folder: name one")
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", str(name))
    if found and not is_uri(name):
        scheme = found[1].lower()
        why = f"write {scheme}://" if scheme in SCHEMES else f"{scheme}: is none of {', '.join(SCHEMES)}"
        raise UserError(f"{what}: {name} is no URI that can be used: {why}, or give a path")


def local_path(name: str | Path, what: str) -> Path:
    """Return the path on this machine that is given, of which ``~`` is a home folder.

    Args:
        name: The path.
        what: The key or option that has it; the message begins with it.

    Raises:
        UserError: It is none (``check_path``) or too long, or there is no such home folder.
    """
    check_path(name, what)
    path = expanded(name, what)
    try:
        path.lstat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UserError(f"{what}: {name} is too long for a path: write a shorter one") from error
    except ValueError as error:  # a null character
        raise UserError(f"{what}: {name} is no path ({error}): write another one") from error
    return path


def expanded(name: str | Path, what: str = "") -> Path:
    """Return a path with the home folder in place of a ``~`` at its beginning.

    Args:
        name: The path.
        what: The key or variable that has it; the message begins with it. Empty: the caller names it.

    Raises:
        UserError: It is empty, or there is no such home folder.
    """
    begin = f"{what}: " if what else ""
    if not str(name):
        raise UserError(f"{begin}'' is no path: write one")
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UserError(f"{begin}{name} begins with a home folder that there is not: give the whole path") from error
