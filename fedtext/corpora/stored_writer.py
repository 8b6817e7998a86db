"""The files of encoded texts of very many clients, and how they are written.

Legend: K clients, N texts, T tokens, V vocabulary, L words of the lexicon.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.streamed import StreamedCorpus
from fedtext.corpora.users import ContentDigest, Lexicon, Users, in_train
from fedtext.runtime import durable
from fedtext.text.tokens import BOS, EOS
from fedtext.text.vocabulary import WordIndex, build_vocabulary

ABOUT = "about.json"  # what the folder is, and its vocabulary: written last
NAMES, NAME_ENDS = "names.utf8", "name-ends.npy"
TOKENS, LENGTHS, COUNTS = "tokens.npy", "lengths.npy", "counts.npy"  # counts: predicted train words, by row
BYTES = "bytes.npy"  # of each text (fedtext.text.tokens.sizes)
TEXTS, FIRST_TEXT, FIRST_TOKEN, TRAIN_TOKENS = "texts.npy", "first-text.npy", "first-token.npy", "train-tokens.npy"
RAW, RAW_LENGTHS, RAW_BYTES = "raw.i32", "lengths.i32", "bytes.i32"  # while it is written; tokens by ids in the lexicon
AT_ONCE = 1 << 22  # tokens


class StoreWriter:
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
        self.tokens: list[NDArray[np.int64]] = []  # of each client
        self.train_tokens: list[NDArray[np.int64]] = []
        self.name_ends: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]

    def write(self, config: StreamedCorpus, seed: int, data: Path | None) -> None:
        """Write the files.

        Args:
            config: The corpus.
            seed: Seed of everything that is drawn.
            data: The folder given with --data, if any.

        Raises:
            UserError: The corpus cannot be read, or has no user with a train text.
        """
        with ExitStack() as opened:
            files = [
                opened.enter_context(open(self.folder / name, "wb")) for name in (RAW, RAW_LENGTHS, RAW_BYTES, NAMES)
            ]
            for users in config.blocks(data, seed, self.lexicon):
                self._add(users.kept(config.validation), config.max_length, files[:3])
                self.digest.add_names(users.names)
                written = [name.encode() for name in users.names]
                files[3].writelines(written)
                self.name_ends.append(self.name_ends[-1][-1] + np.cumsum([len(name) for name in written]))
            _flush(files[3])
        texts_K3 = np.concatenate(self.texts)
        words = list(self.lexicon)
        counts = Counter({word: int(count) for word, count in zip(words, self.counts_L, strict=False) if count})
        del counts[BOS], counts[EOS]
        vocabulary = build_vocabulary([counts], config.words, config.min_count, (BOS, EOS))
        index = WordIndex(vocabulary)
        rows_L = np.array([index[word] for word in words], np.int32)
        self._encode(rows_L, len(vocabulary), texts_K3)
        for name, written_to in ((LENGTHS, RAW_LENGTHS), (BYTES, RAW_BYTES)):
            _named(self.folder / written_to, self.folder / name)
        _save(self.folder / NAME_ENDS, np.concatenate(self.name_ends))
        (self.folder / RAW).unlink()
        about = {"vocabulary": vocabulary, "digest": self.digest.of(vocabulary)}
        durable.write(self.folder / ABOUT, json.dumps(about))

    def _add(self, users: Users, most: int | None, files: Sequence[IO[bytes]]) -> None:
        """Count the words of train texts, and write what is kept of all texts.

        Args:
            users: Some users, in their order.
            most: Tokens that are kept of a text; None: all.
            files: For the tokens, and for the number of tokens and of bytes of each text.
        """
        train_T = users.tokens_T[np.repeat(users.trains(), users.lengths_N)]
        found_L = np.bincount(train_T, minlength=max(len(self.counts_L), len(self.lexicon)))
        found_L[: len(self.counts_L)] += self.counts_L
        self.counts_L = found_L
        kept = users.cut(most)
        written: list[NDArray[Any]] = [kept.tokens_T, kept.lengths_N, self._bytes(kept)]
        for file, numbers in zip(files, written, strict=True):
            file.write(numbers.astype("<i4").data)
        ends_N, first_K = _starts(kept.lengths_N), _starts(kept.texts_K3.sum(1))
        self.texts.append(kept.texts_K3.astype(np.int32))
        self.tokens.append(np.diff(ends_N[first_K]))
        self.train_tokens.append(ends_N[first_K[:-1] + kept.texts_K3[:, 0]] - ends_N[first_K[:-1]])

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

    def _encode(self, rows_L: NDArray[np.int32], vocabulary: int, texts_K3: NDArray[np.int32]) -> None:
        """Write tokens as rows of the vocabulary, where those of each client begin, and counts of predicted words."""
        first_text_K, first_token_K = _starts(texts_K3.sum(1)), _starts(np.concatenate(self.tokens))
        counts_V, small = np.zeros(vocabulary, np.int64), vocabulary <= 1 << 16
        dtype = np.dtype("<u2" if small else "<i4")
        first = 0
        with ExitStack() as opened:
            raw, sizes = (opened.enter_context(open(self.folder / name, "rb")) for name in (RAW, RAW_LENGTHS))
            file = opened.enter_context(open(self.folder / TOKENS, "wb"))
            header = {"descr": dtype.str, "fortran_order": False, "shape": (int(first_token_K[-1]),)}
            np.lib.format.write_array_header_1_0(file, header)
            while first < len(texts_K3):
                reached = int(np.searchsorted(first_token_K, first_token_K[first] + AT_ONCE, "right")) - 1
                last = max(first + 1, reached)
                rows_T = rows_L[np.fromfile(raw, "<i4", int(first_token_K[last] - first_token_K[first]))]
                file.write(rows_T.astype(dtype).data)
                lengths = np.fromfile(sizes, "<i4", int(first_text_K[last] - first_text_K[first]))
                self.digest.add(texts_K3[first:last], lengths, rows_T)
                train_N = in_train(texts_K3[first:last])
                predicted_T = np.repeat(train_N, lengths)
                predicted_T[_starts(lengths)[:-1]] = False
                counts_V += np.bincount(rows_T[predicted_T], minlength=vocabulary)
                first = last
            _flush(file)
        made: dict[str, NDArray[Any]] = {TEXTS: texts_K3, COUNTS: counts_V}
        made |= {FIRST_TEXT: first_text_K[:-1], FIRST_TOKEN: first_token_K[:-1]}
        made[TRAIN_TOKENS] = np.concatenate(self.train_tokens)
        for name, array in made.items():
            _save(self.folder / name, array)


def _save(file: Path, array: NDArray[Any]) -> None:
    """Write an array as ``np.save`` does, whose errors do not say that the disk is full."""
    with open(file, "xb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        stream.write(array.data)
        _flush(stream)


def _named(raw: Path, file: Path) -> None:
    """Turn a file of int32 into an array as ``np.save`` writes it. It is copied, and never whole in memory."""
    header = {"descr": "<i4", "fortran_order": False, "shape": (raw.stat().st_size // 4,)}
    with open(raw, "rb") as source, open(file, "xb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        shutil.copyfileobj(source, stream)
        _flush(stream)
    raw.unlink()


def _flush(stream: IO[bytes]) -> None:
    """Wait until the disk has a file: those whose folder has its final name are complete after any loss of power."""
    stream.flush()
    os.fsync(stream.fileno())


def _starts(counts_K: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return where each of consecutive parts of these sizes begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts_K, dtype=np.int64)])
