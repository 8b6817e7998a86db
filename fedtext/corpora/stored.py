"""Encoded texts of very many clients on disk: written once, and read when a client trains or is evaluated.

A folder of the cache has the tokens of all texts in one file, their lengths in another, and for each client where its
own begin. A process holds as much of them as it has read; who trains no client reads none.
Legend: K clients, N texts, T tokens, V vocabulary.
"""

import json
import os
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.stored_writer import (
    ABOUT,
    BYTES,
    COUNTS,
    FIRST_TEXT,
    FIRST_TOKEN,
    LENGTHS,
    NAME_ENDS,
    NAMES,
    TEXTS,
    TOKENS,
    TRAIN_TOKENS,
    StoreWriter,
)
from fedtext.corpora.streamed import StreamedCorpus
from fedtext.corpora.types import ClientData, TokenSet
from fedtext.errors import UserError, writing
from fedtext.runtime import durable
from fedtext.runtime.abandoned import remove_abandoned
from fedtext.runtime.folders import cache_folder

FORMAT = 3  # of the folders
_OPENING = threading.RLock()  # held while files are opened: another thread waits until all are


class _Stored(ABC):
    """Base of what travels between processes as the name of its folder.

    Its files are opened where it is first used: Ray would report an error while it loads an object as one of its own.
    """

    folder: Path
    closed: bool

    @abstractmethod
    def _read_all(self) -> None:
        """Open the files. Raises one of several errors if one cannot be read."""

    def _open(self) -> None:
        """Open the files.

        Raises:
            UserError: This machine has no such folder, or it cannot be read.
        """
        check_there(self.folder)
        try:
            self._read_all()
        except UserError:
            raise
        except PermissionError as error:
            raise UserError(
                f"corpus.storage: {self.folder} belongs to another user: set $FEDTEXT_CACHE to a folder of your own"
            ) from error
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise _damaged(self.folder, error) from error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        with _OPENING:
            before = dict(vars(self))
            if "closed" in before:
                del self.closed
                try:
                    self._open()
                except BaseException:
                    self.__dict__ = before  # what is wrong is said again by the next use
                    raise
        return object.__getattribute__(self, name)


def _closed(kind: type[_Stored], attributes: Mapping[str, Any]) -> _Stored:
    made = kind.__new__(kind)
    vars(made).update(attributes, closed=True)
    return made


class StoredClients(_Stored, Sequence[ClientData]):
    """The clients of a corpus on disk, loaded one at a time and not kept.

    It travels between processes as the name of its folder.

    Args:
        folder: The folder.

    Raises:
        UserError: This machine has no such folder, or it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open()

    def _read_all(self) -> None:
        about = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
        self.vocabulary: list[str] = about["vocabulary"]
        self.digest: str = about["digest"]
        self.texts_K3, self.train_tokens_K = self._read(TEXTS), self._read(TRAIN_TOKENS)
        self.counts_V = self._read(COUNTS)
        names = (FIRST_TEXT, FIRST_TOKEN, LENGTHS, BYTES, TOKENS)
        found = (Parts(self.folder / name) for name in names)
        self._first_text, self._first_token, self._lengths_N, self._bytes_N, self._tokens_T = found
        self.names = StoredNames(self.folder)
        self.rows_V: NDArray[np.int32] = np.arange(len(self.vocabulary), dtype=np.int32)

    def __reduce__(self) -> tuple[Any, ...]:
        return _closed, (StoredClients, {"folder": self.folder})

    def _read(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = np.load(self.folder / name, mmap_mode="r")
        return found

    def __len__(self) -> int:
        return len(self.texts_K3)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self._client(client) for client in range(len(self))[index]]
        return self._client(range(len(self))[index])

    def _client(self, client: int) -> ClientData:
        texts = self.texts_K3[client].tolist()
        first, start = (int(each.read(client, client + 1)[0]) for each in (self._first_text, self._first_token))
        lengths_N = self._lengths_N.read(first, first + sum(texts))
        bytes_N = self._bytes_N.read(first, first + sum(texts)).astype(np.int64)
        tokens_T = self._tokens_T.read(start, start + int(lengths_N.sum())).astype(np.int32)
        sets = []
        for count in texts:
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(lengths_N[:count], out=offsets[1:])
            own_T = tokens_T[: offsets[-1]]
            sets.append(TokenSet(own_T, offsets, np.zeros(count, np.int64), bytes_N=bytes_N[:count]))
            tokens_T, lengths_N, bytes_N = tokens_T[offsets[-1] :], lengths_N[count:], bytes_N[count:]
        return ClientData(client, self.names[client], self.rows_V, len(self.rows_V), *sets)


def check_there(folder: Path) -> None:
    """Raise UserError if this machine has no such folder of encoded texts."""
    if not folder.is_dir():
        raise UserError(
            f"corpus.storage: {folder} has no encoded texts on this machine: set $FEDTEXT_CACHE to a folder that all "
            "nodes share, or corpus.storage to memory"
        )


class Parts:
    """An array on disk of which parts are read. Mapped files would count their pages, and those beside them, as memory.

    Args:
        path: A file that ``np.save`` can have written.

    Raises:
        ValueError: It is none, or ends early.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, open(path, "rb", buffering=0)  # noqa: SIM115
        np.lib.format.read_magic(self.file)
        (self.count,), _, self.dtype = np.lib.format.read_array_header_1_0(self.file)
        self.start = self.file.tell()
        if os.fstat(self.file.fileno()).st_size < self.start + self.count * self.dtype.itemsize:
            raise ValueError(f"{path.name} ends early")

    def __len__(self) -> int:
        return int(self.count)

    def read(self, first: int, end: int) -> NDArray[Any]:
        """Return the values from ``first`` until before ``end``.

        Raises:
            UserError: The file has become shorter since it was opened.
        """
        size = self.dtype.itemsize
        return np.frombuffer(_read(self.file, self.path, self.start + size * first, size * (end - first)), self.dtype)


class StoredNames(_Stored, Sequence[str]):
    """Names of clients on disk, loaded one at a time.

    Args:
        folder: The folder.
        there: The clients that are named; None: all.

    Raises:
        UserError: This machine has no such folder, or it cannot be read.
    """

    def __init__(self, folder: Path, there: range | None = None) -> None:
        self.folder = folder
        self._open()
        self.there = range(len(self._ends_K) - 1) if there is None else there

    def _read_all(self) -> None:
        self._ends_K = Parts(self.folder / NAME_ENDS)
        self._text = open(self.folder / NAMES, "rb", buffering=0)  # noqa: SIM115
        clients = len(self._ends_K) - 1
        if os.fstat(self._text.fileno()).st_size < int(self._ends_K.read(clients, clients + 1)[0]):
            raise ValueError(f"{NAMES} ends early")

    def __reduce__(self) -> tuple[Any, ...]:
        return _closed, (StoredNames, {"folder": self.folder, "there": self.there})

    def __len__(self) -> int:
        return len(self.there)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            part = StoredNames.__new__(StoredNames)
            part.__dict__ |= self.__dict__ | {"there": self.there[index]}  # with files that are open
            return part
        first, end = self._ends_K.read(self.there[index], self.there[index] + 2).tolist()
        return _read(self._text, self.folder / NAMES, first, end - first).decode()


def _read(file: FileIO, path: Path, start: int, size: int) -> bytes:
    """Return bytes of a file, without moving its position."""
    found = os.pread(file.fileno(), size, start)
    if len(found) < size:
        raise _damaged(path.parent, f"{path.name} ends early")
    return found


def _damaged(folder: Path, why: object) -> UserError:
    return UserError(f"corpus.storage: {folder} is damaged ({why}): remove it, and start again")


def stored(config: StreamedCorpus, seed: int, data: Path | None) -> StoredClients:
    """Return the clients of a corpus on disk. They are encoded if that has not been done yet.

    Args:
        config: The corpus.
        seed: Seed of everything that is drawn.
        data: The folder given with --data, if any.

    Raises:
        UserError: The corpus cannot be read, or the cache cannot be written.
    """
    folder = cache_folder() / f"prepared-{FORMAT}" / config.place(data, seed)
    if not folder.is_dir():
        with writing(folder, "corpus.storage"):
            durable.make_folder(folder.parent)
            remove_abandoned(folder.parent.glob(f".{folder.name}-*"))
            # No one else can read it, since texts are private. Machines that share the cache have equal process ids.
            draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                StoreWriter(draft, config.lexicon()).write(config, seed, data)
                with suppress(OSError):  # another process was faster
                    os.replace(draft, folder)
                durable.sync(folder.parent)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return StoredClients(folder)
