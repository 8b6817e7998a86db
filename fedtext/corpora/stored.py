"""Encoded texts of very many clients on disk: written once, and read when a client trains or is evaluated.

A folder of the cache has the tokens of all texts in one file, their lengths in another, and for each client where its
own begin. A process holds as much of them as it has read; who trains no client reads none.
Legend: K clients, N texts, T tokens, V vocabulary, L words of the lexicon.
"""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.streamed import StreamedCorpus
from fedtext.corpora.types import ClientData, TokenSet
from fedtext.corpora.users import ContentDigest, Lexicon, Users, in_train
from fedtext.errors import UserError, writing
from fedtext.runtime import durable
from fedtext.runtime.folders import cache_folder
from fedtext.text.tokens import BOS, EOS
from fedtext.text.vocabulary import WordIndex, build_vocabulary

FORMAT = 2  # of the folders
ABOUT = "about.json"  # what the folder is, and its vocabulary: written last
NAMES, NAME_ENDS = "names.utf8", "name-ends.npy"
TOKENS, LENGTHS, COUNTS = "tokens.npy", "lengths.npy", "counts.npy"  # counts: predicted train words, by row
BYTES = "bytes.npy"  # of each text (fedtext.text.tokens.sizes)
TEXTS, FIRST_TEXT, FIRST_TOKEN, TRAIN_TOKENS = "texts.npy", "first-text.npy", "first-token.npy", "train-tokens.npy"
RAW = "raw.i32"  # while it is written: tokens by their ids in the lexicon
AT_ONCE = 1 << 22  # tokens


class StoredClients(Sequence[ClientData]):
    """The clients of a corpus on disk. Each is read when it is asked for, and not kept.

    It travels between processes as the name of its folder.

    Args:
        folder: The folder.

    Raises:
        UserError: This machine has no such folder, or it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(
                f"corpus.storage: {folder} has no encoded texts on this machine: set $FEDTEXT_CACHE to a folder that "
                "all nodes share, or corpus.storage to memory"
            )
        self.folder = folder
        try:
            self._open(json.loads((folder / ABOUT).read_text(encoding="utf-8")))
        except PermissionError as error:
            raise UserError(
                f"corpus.storage: {folder} belongs to another user: set $FEDTEXT_CACHE to a folder of your own"
            ) from error
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise UserError(f"corpus.storage: {folder} is damaged ({error}): remove it, and start again") from error

    def _open(self, about: dict[str, Any]) -> None:
        self.vocabulary: list[str] = about["vocabulary"]
        self.digest: str = about["digest"]
        self.texts_K3, self.train_tokens_K = self._read(TEXTS), self._read(TRAIN_TOKENS)
        self.counts_V = self._read(COUNTS)
        self._first_text, self._first_token = self._read(FIRST_TEXT), self._read(FIRST_TOKEN)
        self._lengths_N, self._bytes_N, self._tokens_T = self._read(LENGTHS), self._read(BYTES), self._read(TOKENS)
        self.rows_V: NDArray[np.int32] = np.arange(len(self.vocabulary), dtype=np.int32)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredClients, (self.folder,)

    def _read(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = np.load(self.folder / name, mmap_mode="r")
        return found

    def __len__(self) -> int:
        return len(self.texts_K3)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self._client(client) for client in range(len(self))[index]]
        return self._client(range(len(self))[index])

    @cached_property
    def names(self) -> "StoredNames":
        """Names of all clients."""
        return StoredNames(self.folder)

    def _client(self, client: int) -> ClientData:
        texts = self.texts_K3[client].tolist()
        first = int(self._first_text[client])
        lengths_N = self._lengths_N[first : first + sum(texts)]
        bytes_N = self._bytes_N[first : first + sum(texts)].astype(np.int64)
        start = int(self._first_token[client])
        sets = []
        for count in texts:
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(lengths_N[:count], out=offsets[1:])
            tokens_T = self._tokens_T[start : start + offsets[-1]].astype(np.int32)
            sets.append(TokenSet(tokens_T, offsets, np.zeros(count, np.int64), bytes_N=bytes_N[:count]))
            start, lengths_N, bytes_N = start + int(offsets[-1]), lengths_N[count:], bytes_N[count:]
        return ClientData(client, self.names[client], self.rows_V, len(self.rows_V), *sets)


class StoredNames(Sequence[str]):
    """Names of clients on disk. Each is read when it is asked for.

    Args:
        folder: The folder.
        there: The clients that are named; None: all.
    """

    def __init__(self, folder: Path, there: range | None = None) -> None:
        self.folder = folder
        self._ends_K = np.load(folder / NAME_ENDS, mmap_mode="r")
        self._text = np.memmap(folder / NAMES, np.uint8, "r")
        self.there = range(len(self._ends_K) - 1) if there is None else there

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredNames, (self.folder, self.there)

    def __len__(self) -> int:
        return len(self.there)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return StoredNames(self.folder, self.there[index])
        place = self.there[index]
        return self._text[self._ends_K[place] : self._ends_K[place + 1]].tobytes().decode()


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
            # Nobody else can read it, since texts are private. Machines that share the cache have equal process ids.
            draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                _Writer(draft, config.lexicon()).write(config, seed, data)
                with suppress(OSError):  # another process was faster
                    os.replace(draft, folder)
                durable.sync(folder.parent)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return StoredClients(folder)


class _Writer:
    """Encodes a corpus into a folder: first by a lexicon of all words, then by the vocabulary that is counted.

    Args:
        folder: The folder, which is empty.
        lexicon: The words that are known before texts are read.
    """

    def __init__(self, folder: Path, lexicon: Lexicon) -> None:
        self.folder, self.lexicon = folder, lexicon
        self.counts_L: NDArray[np.int64] = np.zeros(0, np.int64)  # of words in whole train texts
        self.sizes_L: NDArray[np.int64] = np.zeros(0, np.int64)  # bytes of each word and of the blank behind it
        self.digest = ContentDigest()
        self.texts: list[NDArray[np.int32]] = []
        self.lengths: list[NDArray[np.int32]] = []
        self.bytes: list[NDArray[np.int32]] = []
        self.name_ends: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]

    def write(self, config: StreamedCorpus, seed: int, data: Path | None) -> None:
        """Write the files.

        Raises:
            UserError: The corpus cannot be read, or has no user with a train text.
        """
        with open(self.folder / RAW, "wb") as raw, open(self.folder / NAMES, "wb") as names:
            for users in config.blocks(data, seed, self.lexicon):
                self._add(users.kept(config.validation), config.max_length, raw)
                self.digest.add_names(users.names)
                written = [name.encode() for name in users.names]
                names.writelines(written)
                self.name_ends.append(self.name_ends[-1][-1] + np.cumsum([len(name) for name in written]))
            _flush(names)
        texts_K3, lengths_N = np.concatenate(self.texts), np.concatenate(self.lengths)
        words = list(self.lexicon)
        counts = Counter({word: int(count) for word, count in zip(words, self.counts_L, strict=False) if count})
        del counts[BOS], counts[EOS]
        vocabulary = build_vocabulary([counts], config.words, config.min_count, (BOS, EOS))
        index = WordIndex(vocabulary)
        rows_L = np.array([index[word] for word in words], np.int32)
        self._encode(rows_L, len(vocabulary), texts_K3, lengths_N)
        _save(self.folder / BYTES, np.concatenate(self.bytes))
        _save(self.folder / NAME_ENDS, np.concatenate(self.name_ends))
        (self.folder / RAW).unlink()
        about = {"vocabulary": vocabulary, "digest": self.digest.of(vocabulary)}
        durable.write(self.folder / ABOUT, json.dumps(about))

    def _add(self, users: Users, most: int | None, raw: IO[bytes]) -> None:
        """Count the words of train texts, and write the tokens that are kept of all texts."""
        train_T = users.tokens_T[np.repeat(users.trains(), users.lengths_N)]
        found_L = np.bincount(train_T, minlength=max(len(self.counts_L), len(self.lexicon)))
        found_L[: len(self.counts_L)] += self.counts_L
        self.counts_L = found_L
        kept = users.cut(most)
        raw.write(kept.tokens_T.astype("<i4").data)
        self.texts.append(kept.texts_K3.astype(np.int32))
        self.lengths.append(kept.lengths_N.astype(np.int32))
        self.bytes.append(self._bytes(kept))

    def _bytes(self, users: Users) -> NDArray[np.int32]:
        """Count the bytes of texts, as ``fedtext.text.tokens.sizes`` does."""
        new = islice(self.lexicon, len(self.sizes_L), None)
        sizes = [0 if word in (BOS, EOS) else len(word.encode()) + 1 for word in new]
        self.sizes_L = np.concatenate([self.sizes_L, np.array(sizes, np.int64)])
        ends_N = np.cumsum(users.lengths_N)
        until_T = np.concatenate([[0], np.cumsum(self.sizes_L[users.tokens_T])])
        words_N = until_T[ends_N] - until_T[ends_N - users.lengths_N]
        ended_N = users.tokens_T[ends_N - 1] == self.lexicon[EOS]
        return (np.maximum(words_N - 1, 0) + ended_N).astype(np.int32)

    def _encode(
        self, rows_L: NDArray[np.int32], vocabulary: int, texts_K3: NDArray[np.int32], lengths_N: NDArray[np.int32]
    ) -> None:
        """Write tokens as rows of the vocabulary, where those of each client begin, and counts of predicted words."""
        first_text_K, ends_N = _starts(texts_K3.sum(1)), np.concatenate([[0], np.cumsum(lengths_N, dtype=np.int64)])
        first_token_K = ends_N[first_text_K]
        train_tokens_K = ends_N[first_text_K[:-1] + texts_K3[:, 0]] - first_token_K[:-1]
        counts_V, small = np.zeros(vocabulary, np.int64), vocabulary <= 1 << 16
        dtype = np.dtype("<u2" if small else "<i4")
        first = 0
        with open(self.folder / RAW, "rb") as raw, open(self.folder / TOKENS, "wb") as file:
            header = {"descr": dtype.str, "fortran_order": False, "shape": (int(first_token_K[-1]),)}
            np.lib.format.write_array_header_1_0(file, header)
            while first < len(texts_K3):
                reached = int(np.searchsorted(first_token_K, first_token_K[first] + AT_ONCE, "right")) - 1
                last = max(first + 1, reached)
                rows_T = rows_L[np.fromfile(raw, "<i4", int(first_token_K[last] - first_token_K[first]))]
                file.write(rows_T.astype(dtype).data)
                lengths = lengths_N[first_text_K[first] : first_text_K[last]]
                self.digest.add(texts_K3[first:last], lengths, rows_T)
                train_N = in_train(texts_K3[first:last])
                predicted_T = np.repeat(train_N, lengths)
                predicted_T[ends_N[first_text_K[first] : first_text_K[last]] - first_token_K[first]] = False
                counts_V += np.bincount(rows_T[predicted_T], minlength=vocabulary)
                first = last
            _flush(file)
        made: dict[str, NDArray[Any]] = {TEXTS: texts_K3, LENGTHS: lengths_N, COUNTS: counts_V}
        made |= {FIRST_TEXT: first_text_K[:-1], FIRST_TOKEN: first_token_K[:-1], TRAIN_TOKENS: train_tokens_K}
        for name, array in made.items():
            _save(self.folder / name, array)


def _save(file: Path, array: NDArray[Any]) -> None:
    """Write an array as ``np.save`` does, whose errors do not say that the disk is full."""
    with open(file, "xb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        stream.write(array.data)
        _flush(stream)


def _flush(stream: IO[bytes]) -> None:
    """Wait until the disk has a file: those whose folder has its final name are complete after any loss of power."""
    stream.flush()
    os.fsync(stream.fileno())


def _starts(counts_K: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return where each client's texts begin, and where the last ones end."""
    return np.concatenate([[0], np.cumsum(counts_K, dtype=np.int64)])
