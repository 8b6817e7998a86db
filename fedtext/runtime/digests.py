"""Digests of data files: ``SHA256SUMS`` beside them, as ``sha256sum`` writes it, says what each of them must be."""

import hashlib
import re
from functools import lru_cache
from pathlib import Path

from fedtext.errors import UserError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"\\?([0-9a-fA-F]{64}) [ *](.+)")


def verify(path: Path, root: Path) -> None:
    """Compare a file, or all files of a folder, with the digests in ``SHA256SUMS``.

    Every folder from ``root`` down to the file's own may have such a list. A file that no list names is not checked.

    Args:
        path: The file or folder.
        root: The outermost folder whose list counts.

    Raises:
        UserError: A file is not the one that is listed, or a list has a line of another form.
    """
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if not file.is_file() or file.name == SUMS:
            continue
        for folder in outward(file, root):
            listed = _listed(folder / SUMS).get(file.relative_to(folder).as_posix())
            if listed and listed != _digest(file, file.stat().st_mtime_ns, file.stat().st_size):
                raise UserError(
                    f"{file} is not the file that {folder / SUMS} lists (another sha256): copy it to this machine "
                    "again, or write the list anew if the file was meant to change"
                )


def outward(file: Path, root: Path) -> list[Path]:
    """Return the folder of a file, and those above it up to ``root``."""
    return [file.parent, *(folder for folder in file.parent.parents if folder.is_relative_to(root))]


def _listed(sums: Path) -> dict[str, str]:
    """Return the digests in a list, by file; empty if there is no list."""
    return _parsed(sums, sums.stat().st_mtime_ns, sums.stat().st_size) if sums.is_file() else {}


@lru_cache(maxsize=256)
def _parsed(sums: Path, _changed: int, _size: int) -> dict[str, str]:
    found = {}
    for number, line in enumerate(sums.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if line.strip():
            if not (parts := _LINE.fullmatch(line)):
                raise UserError(f"{sums}, line {number}: not a digest, two blanks and a name: write it with sha256sum")
            found[parts[2].removeprefix("./")] = parts[1].lower()
    return found


@lru_cache(maxsize=4096)
def _digest(file: Path, _changed: int, _size: int) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
