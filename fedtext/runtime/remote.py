"""Files on object stores and other filesystems of pyarrow, by URI: ``s3://``, ``gs://``, ``abfs://``, ``hdfs://``, ``file://``.

Credentials come from where each store's own tools take them (the environment, a profile, the machine's role), never
from a URI: URIs are stored with runs and appear in messages.
"""

import contextlib
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from fedtext.errors import UserError
from fedtext.runtime.slow import said_if_slow

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

OBJECT_STORES = ("s3", "gcs", "abfs")  # pyarrow's names of those where a file becomes visible as a whole, once closed
_CHUNK = 1 << 23  # bytes
_GONE = re.compile("RESOURCE_NOT_FOUND|NO_SUCH_KEY")
# Options of pyarrow's filesystems unless a URI has them. By s3 a small file is written by one request, not three; gs
# would try a request again for 15 minutes, also where credentials are missing.
_OPTIONS = {"s3": ("allow_delayed_open", "true"), "gs": ("retry_limit_seconds", "60")}
_OPTIONS["gcs"] = _OPTIONS["gs"]

# Requests to s3 are tried again this many times, at once. Without an answer one takes 3 s, or 9 s if it writes, and all
# of them less than a minute; pyarrow's own 10 take up to 2 minutes. gs gives up after a minute (above).
RETRIES = 4
SLOW_S = 8.0  # after which it is said what is waited for
_AGAIN_S = 60.0  # until it is said again of the same store
_said: dict[str, float] = {}  # when it was said last, by store

# Environment variables by which the libraries of these stores find a store and its credentials: beginnings of names.
_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "HADOOP_", "ARROW_LIBHDFS", "KRB5", "CLASSPATH", "JAVA_HOME")


def store_variables() -> dict[str, str]:
    """Return the environment variables by which this process reaches stores, for a process that has another
    environment. They contain secrets."""
    return {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}


class Remote:
    """A folder or a file at a URI.

    Args:
        uri: The URI, such as ``s3://bucket/folder``. Options of the filesystem may follow as a query:
            ``?region=eu-west-1``, ``?endpoint_override=store:9000&scheme=http``.
        what: The key or option that has the URI; messages begin with it.

    Raises:
        UserError: It contains credentials, lacks a bucket or host, or pyarrow cannot open such a filesystem.
    """

    def __init__(self, uri: str, what: str) -> None:
        self.uri, self.what = _checked(str(uri), what), what
        self.shown, _, self._query = self.uri.partition("?")
        self.shown = self.shown.rstrip("/")

    def __str__(self) -> str:
        return self.shown

    def __truediv__(self, name: str) -> "Remote":
        return Remote(f"{self.shown}/{name}" + (f"?{self._query}" if self._query else ""), self.what)

    @property
    def local(self) -> Path | None:
        """The path that a ``file://`` URI names; None for all others."""
        return Path(unquote(urlsplit(self.uri).path)) if self.uri.startswith("file:") else None

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.shown.rpartition("/")[2]

    @property
    def parent(self) -> "Remote":
        """The folder that contains it."""
        return Remote(self.shown.rpartition("/")[0] + (f"?{self._query}" if self._query else ""), self.what)

    def info(self) -> "FileInfo | None":
        """Return type, size and time of the last change; None if there is nothing."""
        from pyarrow.fs import FileType

        with self.problems("read"):
            filesystem, path = _opened(self.uri)
            found = filesystem.get_file_info(path)
        return None if found.type == FileType.NotFound else found

    def files(self) -> dict[str, "FileInfo"]:
        """Return the files below it, by their paths relative to it.

        An object store may have names that, as paths, would lead out of a folder: these are left out.
        """
        from pyarrow.fs import FileSelector, FileType

        with self.problems("read"):
            filesystem, path = _opened(self.uri)
            found = filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
        start = len(path.rstrip("/")) + 1
        files = {one.path[start:]: one for one in found if one.type == FileType.File}
        return {name: one for name, one in files.items() if not {"", ".", ".."} & set(name.split("/"))}

    def read(self) -> bytes | None:
        """Return the content of a file; None if there is none."""
        with self.problems("read"):
            filesystem, path = _opened(self.uri)
            try:
                with filesystem.open_input_stream(path) as stream:
                    return stream.read()
            except FileNotFoundError:
                return None
            except OSError as error:  # pyarrow's, if it is removed between two requests of this call
                if _GONE.search(str(error)):
                    return None
                raise

    def fetch(self, target: Path, mode: int = 0o666) -> None:
        """Copy a file to a local path, which appears as a whole."""
        draft = target.with_name(f".{target.name}-{os.getpid()}.draft")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.problems("read"):
                filesystem, path = _opened(self.uri)
                with filesystem.open_input_stream(path) as source, _created(draft, mode) as copy:
                    while chunk := source.read(_CHUNK):
                        copy.write(chunk)
                os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    def write(self, content: bytes) -> None:
        """Write a file, which appears as a whole."""
        with self.problems("written"):
            filesystem, path = _opened(self.uri)
            if filesystem.type_name in OBJECT_STORES:
                with filesystem.open_output_stream(path) as stream:
                    stream.write(content)
                return
            folder, _, name = path.rpartition("/")
            filesystem.create_dir(folder, recursive=True)
            draft = f"{folder}/.{name}.{secrets.token_hex(4)}.draft"  # another process may write the same file
            try:
                with filesystem.open_output_stream(draft) as stream:
                    stream.write(content)
                filesystem.move(draft, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    filesystem.delete_file(draft)
                raise

    def copy(self, source: "Remote") -> None:
        """Make this file a copy of another one on the same object store, which copies it itself.

        Raises:
            UserError: The store does not, or it is a filesystem of another kind.
        """
        with self.problems("written"):
            filesystem, path = _opened(self.uri)
            if filesystem.type_name not in OBJECT_STORES:  # where a copy would be visible before it is whole
                raise UserError(f"{self.what}: {self.shown} is on no object store, which could copy files itself")
            filesystem.copy_file(_opened(source.uri)[1], path)

    def remove(self) -> None:
        """Remove a file, if it is there."""
        with self.problems("written"), contextlib.suppress(FileNotFoundError):
            filesystem, path = _opened(self.uri)
            filesystem.delete_file(path)

    def remove_folder(self) -> None:
        """Remove a folder with all that is in it, if it is there.

        On an object store a folder whose files are removed one by one stays as an empty object.
        """
        with self.problems("written"), contextlib.suppress(FileNotFoundError):
            filesystem, path = _opened(self.uri)
            try:
                filesystem.delete_dir(path)
            except FileNotFoundError:
                raise
            except OSError:  # not every store removes several objects by one request
                for name in self.files():
                    (self / name).remove()

    @contextlib.contextmanager
    def problems(self, done: str) -> Iterator[None]:
        """Turn an error of the filesystem into a UserError, which says what cannot be ``done``.

        If the block takes long, a warning says what is waited for, and until when.
        """
        import pyarrow

        try:
            with said_if_slow(SLOW_S, partial(self._say_slow, done)):
                yield
        except (OSError, pyarrow.ArrowException) as error:
            reason = str(error).partition("\n")[0].partition(" Detail: ")[0].rstrip(". ")
            raise UserError(
                f"{self.what}: {self.shown} cannot be {done} ({reason}): check the address, the network, and the "
                f"credentials of {self.uri.partition(':')[0]} on this machine"
            ) from error

    def _say_slow(self, done: str) -> None:
        """Warn that this is waited for, unless that was said of the store a short time ago."""
        scheme, _, rest = self.shown.partition("://")
        store, now = f"{scheme}://{rest.partition('/')[0]}", time.monotonic()
        if now < _said.get(store, -_AGAIN_S) + _AGAIN_S:
            return
        _said[store] = now
        limit = "within a minute" if scheme in ("s3", "gs", "gcs") else "when the library of the store gives it up"
        logging.getLogger(__name__).warning(
            "%s: waiting for %s to be %s; without an answer of the store that fails %s", self.what, self, done, limit
        )


@contextlib.contextmanager
def _created(path: Path, mode: int) -> Iterator[IO[bytes]]:
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def _checked(uri: str, what: str) -> str:
    """Return a URI with its scheme in lower case. Raises UserError if it contains credentials, which are not repeated,
    or no bucket."""
    scheme, _, rest = uri.partition("://")
    scheme = scheme.lower()
    if scheme == "file":
        return f"file:///{rest.lstrip('/')}"
    place, _, query = rest.partition("?")
    host = place.partition("/")[0]
    before, at, _ = host.rpartition("@")
    # abfs://container@account.dfs.core.windows.net names a container, no password
    if (at and (":" in before or not scheme.startswith("abfs"))) or re.search(
        r"(?i)key|secret|token|sig=|password", query
    ):
        raise UserError(
            f"{what}: the URI of {scheme} contains credentials, and URIs are stored with runs: leave them out, and "
            "give them as the store's own tools take them (for s3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "AWS_PROFILE or the machine's role)"
        )
    if not host and scheme not in ("hdfs", "viewfs"):
        raise UserError(f"{what}: {uri} names no bucket: write {scheme}://BUCKET/FOLDER")
    return f"{scheme}://{rest}"


@lru_cache(maxsize=64)
def _root(root: str) -> "FileSystem":
    import pyarrow
    from pyarrow.fs import FileSystem

    name, value = _OPTIONS.get(root.partition(":")[0], ("", ""))
    if name and f"{name}=" not in root:
        with contextlib.suppress(pyarrow.ArrowInvalid):  # an older pyarrow does not know the option
            return _limited(FileSystem.from_uri(f"{root}{'&' if '?' in root else '?'}{name}={value}")[0])
    return _limited(FileSystem.from_uri(root)[0])


def _limited(filesystem: "FileSystem") -> "FileSystem":
    """Return a filesystem of s3 with fewer retries, which no URI can say; others as they are."""
    from pyarrow import fs

    kind = getattr(fs, "S3FileSystem", None)  # not every build has it
    if kind is None or not isinstance(filesystem, kind):
        return filesystem
    make, (options,) = filesystem.__reduce__()
    return make(options | {"retry_strategy": fs.AwsDefaultS3RetryStrategy(max_attempts=RETRIES)})


def _opened(uri: str) -> tuple["FileSystem", str]:
    """Return the filesystem of a URI, which is kept for its bucket, and the path in it."""
    where, _, query = uri.partition("?")
    scheme, _, rest = where.partition("://")
    host, _, path = rest.partition("/")
    filesystem = _root(f"{scheme}://{host}" + (f"?{query}" if query else "") if host else f"{scheme}:///")
    if scheme in ("hdfs", "viewfs"):
        return filesystem, f"/{path}"
    container = host.partition("@")[0] if scheme.startswith("abfs") else host
    return filesystem, f"{container}/{path}".rstrip("/")
