"""The folders of data files and of the cache.

A data folder may lie at a URI, on an object store or another filesystem of pyarrow. It has then a copy in the cache
folder, made file by file when a file is asked for. Readers see ordinary paths, and a file is transferred again only
after it has changed at its origin.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedtext.errors import UserError, option
from fedtext.runtime.digests import SUMS, outward, verify
from fedtext.runtime.paths import expanded, is_uri, local_path, with_slashes
from fedtext.runtime.remote import Remote

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

ORIGIN = ".origin"  # in a copy: the URI it is a copy of, and the option that has it


def cache_folder() -> Path:
    """Return the folder of downloaded and computed files: $FEDTEXT_CACHE, else the user's cache folder."""
    return expanded(os.environ.get("FEDTEXT_CACHE") or "~/.cache/fedtext", "$FEDTEXT_CACHE")


def check_folder(data: Path | None) -> None:
    """Raise UserError if the folder that is given for data files does not exist."""
    if data is None:
        return
    remote = origin(data)
    if not data.is_dir() or (remote is not None and remote.info() is None):
        raise UserError(f"{option('data')}: there is no folder {remote or data}")


def folders(data: Path | None) -> list[Path]:
    """Return the folders of data files: the one given with --data, else $FEDTEXT_DATA and the cache."""
    if data is not None:
        return [data]
    named = os.environ.get("FEDTEXT_DATA")
    return [*([folder_of(named, "$FEDTEXT_DATA")] if named else []), cache_folder()]


def folder_of(name: str | Path, what: str) -> Path:
    """Return the local folder of a name: the path, or the copy in the cache of the folder at a URI.

    Args:
        name: A path, or a URI.
        what: The option or variable that has it; messages begin with it.

    Raises:
        UserError: It is empty, or a URI that cannot be used.
    """
    if not is_uri(name):
        return local_path(name, what)
    remote = Remote(str(name), what)
    if remote.local is not None:
        return remote.local
    copy = _copies() / f"{hashlib.sha256(remote.uri.encode()).hexdigest()[:12]}-{remote.name}"
    if not (copy / ORIGIN).is_file():
        copy.mkdir(parents=True, exist_ok=True)
        copy.chmod(0o700)  # texts are private, whatever the store allows
        (copy / ORIGIN).write_text(f"{remote.uri}\n{what}\n", encoding="utf-8")
    return copy


def written_to(name: str | Path) -> Path:
    """Return the local folder that a model is written to.

    Args:
        name: Its path.

    Raises:
        UserError: It is empty, or a URI.
    """
    if is_uri(typed := with_slashes(name)):
        raise UserError(f"{typed} is a URI, and a model is written to a local folder: name one, and copy it there")
    return local_path(name, "the folder")


def origin(path: Path) -> Remote | None:
    """Return where a path in a copy comes from; None if it is in no copy."""
    copies = _copies()
    if not path.is_relative_to(copies) or path == copies:
        return None
    copy = copies / path.relative_to(copies).parts[0]
    uri, what = (copy / ORIGIN).read_text(encoding="utf-8").splitlines()
    remote = Remote(uri, what)
    return remote if path == copy else remote / path.relative_to(copy).as_posix()


def stored(folder: Path) -> str:
    """Return the name of a folder by which ``folder_of`` finds it again, on another machine too if it is a URI."""
    remote = origin(folder)
    return remote.uri if remote else str(folder.resolve())


def present(path: Path) -> bool:
    """Whether there is such a file or folder. A path in a copy is compared with its origin, and fetched if it changed.

    Raises:
        UserError: The origin cannot be read.
    """
    remote = origin(path)
    if remote is None:
        return path.exists()
    found = remote.info()
    if found is not None and found.is_file:
        _fetched(path, remote, found)
        return True
    files = {} if found is None and remote.uri.startswith(("hdfs", "viewfs")) else remote.files()
    wanted = {path / name: name for name in files if not any(part.startswith(".") for part in name.split("/"))}
    for file in [file for file in (path, *path.rglob("*")) if file.is_file() and file.name != ORIGIN]:
        if file not in wanted:
            file.unlink()  # no longer there, or no file but a folder
    for file, name in wanted.items():
        _fetched(file, remote / name, files[name])
    return bool(wanted)


def checked(path: Path, root: Path) -> Path:
    """Return a path that is present, after comparing it with the digests that lie beside it (``runtime.digests``).

    Args:
        path: A file or folder.
        root: The outermost folder whose list of digests counts.

    Raises:
        UserError: A file is not the one that is listed.
    """
    for folder in outward(path, root):
        if origin(folder):
            present(folder / SUMS)
    verify(path, root)
    return path


def located(name: str, folders: Iterable[Path], what: str) -> Path | None:
    """Return the file or folder of a name in an experiment; None if there is none.

    Args:
        name: A URI, a path, or a path relative to one of ``folders``.
        folders: The folders to search after the working folder.
        what: The key that has the name.

    Raises:
        UserError: It is empty, begins with a home folder that there is not, is a URI, or in a folder at a URI, that
            cannot be read, or it is not the file that ``SHA256SUMS`` lists.
    """
    if is_uri(name):
        remote = Remote(name, what)
        path = remote.local or folder_of(remote.parent.uri, what) / remote.name
        candidates = [(path, path.parent)]
    else:
        typed = expanded(name, what)
        candidates = [(typed, typed.parent), *((folder / typed, folder) for folder in folders)]
    found = next((pair for pair in candidates if present(pair[0])), None)
    if found is None:
        return None
    path, root = found
    if path.resolve() == Path(path.resolve().anchor):
        raise UserError(f"{what}: {name} is the folder of all files of this machine: name one with texts")
    return checked(path, root)


def _fetched(path: Path, remote: Remote, found: "FileInfo") -> None:
    """Copy a file unless the copy has the size and the time of the file."""
    there = path.stat() if path.is_file() else None
    if there is None or (there.st_size, there.st_mtime_ns) != (found.size, found.mtime_ns):
        remote.fetch(path)
        os.utime(path, ns=(found.mtime_ns, found.mtime_ns))


@contextmanager
def origins_named() -> Iterator[None]:
    """Let messages of this block name the URI of a file, where they would name its copy in the cache.

    Raises:
        UserError: The block raised it.
    """
    try:
        yield
    except UserError as error:
        message = str(error)
        for copy in _copies().glob("*/") if str(_copies()) in message else ():
            message = message.replace(str(copy), str(origin(copy)))
        raise UserError(message) from error


def _copies() -> Path:
    return (cache_folder() / "remote").resolve()
