"""Digests of the files of a checkpoint, and what is wrong with a checkpoint that has changed."""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

SUMS = "SHA256SUMS"


def sums(digests: Mapping[str, str]) -> bytes:
    """Return the content of ``SHA256SUMS``, in the format of sha256sum, of digests by file name."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode()


def listed(content: bytes) -> dict[str, str]:
    """Return the digests by file name that ``sums`` was given, of a content that may be damaged."""
    return {line[66:]: line[:64] for line in content.decode("utf-8", "replace").splitlines()}


def damage(state: Path, unread: Collection[str] = ()) -> str:
    """Return what is wrong with the files of a checkpoint; empty if they are unchanged.

    Args:
        state: The folder of the checkpoint.
        unread: Names of files whose content is not read: only that they are there.

    Raises:
        PermissionError: This user may not read them.
    """
    where = f"the checkpoint {state} is damaged"
    if not (state / SUMS).is_file():
        return f"{where}, or an earlier version wrote it: it has no {SUMS}"
    try:
        content = (state / SUMS).read_bytes()
        expected, there = listed(content), {}
        for path in state.iterdir():
            if path.name == SUMS:
                continue
            if path.name in unread:
                there[path.name] = expected.get(path.name, "")
            else:
                with open(path, "rb") as stream:
                    there[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    except PermissionError:
        raise
    except OSError as error:
        return f"{where}: {error.filename} cannot be read ({error.strerror})"
    if content == sums(there):
        return ""
    if missing := sorted(set(expected) - set(there)):
        return f"{where}: {missing[0]} is missing" if sums(expected) == content else f"{where}: {SUMS} has changed"
    if extra := sorted(set(there) - set(expected)):
        return f"{where}: {extra[0]} does not belong to it"
    changed = sorted(name for name in there if there[name] != expected[name])
    return f"{where}: {changed[0] if changed else SUMS} has changed since it was written"
