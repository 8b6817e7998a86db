"""Word vectors from files, and the initial embedding table made from them.

Legend: W words with a vector, V vocabulary, D embedding.
"""

import gzip
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtext.errors import UserError
from fedtext.runtime.folders import located
from fedtext.runtime.paths import expanded, is_uri
from fedtext.seeding import generator
from fedtext.text.tokens import PAD, PAD_ID

_KEY = "model.embedding.init.file.path"


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors: ``vectors_WD[i]`` is that of ``words[i]``. If a word occurs twice, the first counts."""

    words: list[str]
    vectors_WD: NDArray[np.float32]

    @cached_property
    def row(self) -> dict[str, int]:
        """The row of each word in ``vectors_WD``."""
        rows: dict[str, int] = {}
        for i, word in enumerate(self.words):
            rows.setdefault(word, i)
        return rows


def table(vocabulary: list[str], vectors: WordVectors, seed: int, zero: bool = False) -> NDArray[np.float32]:
    """Make the initial embedding table. The row of <pad> is 0.

    Args:
        vocabulary: V words.
        vectors: The word vectors.
        seed: Seed of the draws.
        zero: Whether rows of words without a vector are 0. Otherwise they are drawn from N(0, s^2), where s is the
            standard deviation of the vectors' coordinates.

    Returns:
        The table, shape (V, D).

    Raises:
        UserError: No word has a vector.
    """
    found = [(i, vectors.row[word]) for i, word in enumerate(vocabulary) if word in vectors.row and word != PAD]
    if not found:
        raise UserError(
            "none of the word vectors given by model.embedding.init belongs to a word of the corpus: check that they "
            "are of its language and lower-cased like its texts"
        )
    rows, sources = (np.array(side) for side in zip(*found, strict=True))
    known = vectors.vectors_WD[sources]
    shape = (len(vocabulary), known.shape[1])
    if zero:
        table_VD = np.zeros(shape, np.float32)
    else:
        table_VD = generator(seed, "words without a vector").standard_normal(shape, np.float32) * known.std()
    table_VD[rows] = known
    table_VD[PAD_ID] = 0
    return np.ascontiguousarray(table_VD, np.float32)


def find_file(path: str, folders: Iterable[Path]) -> Path:
    """Find a file of word vectors, in the working folder or else in the first of ``folders`` that has it.

    Raises:
        UserError: It is in none of them.
    """
    folders = list(folders)
    found = located(path, folders, _KEY)
    if found is not None and found.is_file():
        return found
    given = expanded(path, _KEY)
    candidates = (
        [path] if is_uri(path) else list(dict.fromkeys(map(str, [given, *(where / given for where in folders)])))
    )
    raise UserError(
        f"no word vectors at {' or '.join(candidates)}: correct {_KEY}, put the file there, or use "
        "model.embedding.init=random or word2vec"
    )


def read_vectors(path: Path, dim: int, wanted: Container[str]) -> WordVectors:
    """Read word vectors from a file.

    Args:
        path: A GloVe, word2vec or fastText (.vec) text file (also .gz), an .npz with ``words`` and ``vectors``, or a
            .parquet file with columns ``word`` and ``vector``.
        dim: Expected dimension.
        wanted: Words whose vectors are returned.

    Raises:
        UserError: The file is malformed or has another dimension. The message names file and line.
    """
    readers = {".npz": _read_npz, ".parquet": _read_parquet}
    try:
        return readers.get(path.suffix, _read_text)(path, dim, wanted)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"word vectors in {path} cannot be read ({error}): correct {_KEY}") from error


def _read_npz(path: Path, dim: int, wanted: Container[str]) -> WordVectors:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            words, vectors_WD = arrays["words"].tolist(), arrays["vectors"]
    except (KeyError, ValueError) as error:
        raise UserError(
            f"{path} must have arrays 'words' (strings) and 'vectors' (words x dim) ({error}): save it with "
            "numpy.savez(path, words=..., vectors=...)"
        ) from error
    return _checked(path, dim, words, vectors_WD, wanted)


def _read_parquet(path: Path, dim: int, wanted: Container[str]) -> WordVectors:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, columns=["word", "vector"])
        words, vectors_WD = table["word"].to_pylist(), np.stack(table["vector"].to_numpy())
    except (pyarrow.ArrowException, KeyError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{path} must have columns 'word' (strings) and 'vector' (lists of {dim} numbers) ({reason}): repair it"
        ) from error
    return _checked(path, dim, words, vectors_WD, wanted)


def _checked(path: Path, dim: int, words: list[str], vectors_WD: NDArray, wanted: Container[str]) -> WordVectors:
    """Select the ``wanted`` words. Raises UserError unless each word has ``dim`` finite numbers."""
    if vectors_WD.ndim != 2 or len(words) != len(vectors_WD) or vectors_WD.dtype.kind not in "fiu":
        raise UserError(
            f"{path} has {len(words)} words but 'vectors' of shape {vectors_WD.shape} and type {vectors_WD.dtype}: "
            "save one row of numbers per word"
        )
    if vectors_WD.shape[1] != dim:
        raise UserError(
            f"{path} has vectors of {vectors_WD.shape[1]} numbers but model.embedding.dim is {dim}: set it to "
            f"{vectors_WD.shape[1]} or use another file"
        )
    keep = [i for i, word in enumerate(words) if word in wanted]
    with np.errstate(over="ignore"):  # to infinity, which is refused
        kept_WD = vectors_WD[keep].astype(np.float32)
    if not (np.isfinite(vectors_WD).all() and np.isfinite(kept_WD).all()):
        raise UserError(f"{path} has numbers that are not finite in float32: repair it")
    return WordVectors([words[i] for i in keep], kept_WD)


def _read_text(path: Path, dim: int, wanted: Container[str]) -> WordVectors:
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    for number, line in _lines(path):
        if number == 1 and _is_header(line, path, dim):
            continue
        # A word may contain blanks (GloVe 840B has ". . ."), so the numbers are counted from the end.
        word, *numbers = line.rstrip().rsplit(" ", dim)
        if len(numbers) != dim or _is_number(word.rpartition(" ")[2], word):
            raise _wrong_width(f"{path}, line {number},", len(line.split()) - 1, dim)
        if word in wanted:
            words.append(word)
            rows.append(_numbers(numbers, path, number))
    return WordVectors(words, np.array(rows, np.float32).reshape(len(words), dim))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Return numbered non-empty lines. Bytes that are not UTF-8 can only be in words, which then match none."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _is_header(line: str, path: Path, dim: int) -> bool:
    """Whether a line is the header of word2vec and fastText: number of words, and dimension. Raises UserError if the
    dimension is not ``dim``."""
    parts = line.split()
    if len(parts) != 2 or dim == 1 or not all(part.isdigit() for part in parts):
        return False
    if int(parts[1]) != dim:
        raise _wrong_width(f"{path}, line 1,", int(parts[1]), dim)
    return True


def _is_number(last: str, word: str) -> bool:
    """Whether a word of several parts ends in a number: then the line has more than ``dim`` numbers."""
    try:
        return last != word and np.isfinite(float(last))
    except ValueError:
        return False


def _numbers(parts: list[str], path: Path, number: int) -> NDArray[np.float32]:
    try:
        vector = np.array(parts, np.float32)
    except ValueError:
        vector = np.array([np.nan], np.float32)
    if not np.isfinite(vector).all():
        raise UserError(
            f"{path}, line {number}: not {len(parts)} finite numbers after the word: repair or drop the line"
        )
    return vector


def _wrong_width(where: str, width: int, dim: int) -> UserError:
    if width == dim:
        return UserError(f"{where} is not a word and {dim} numbers with single blanks between them: repair it")
    return UserError(
        f"{where} has {width} numbers after the word but model.embedding.dim is {dim}: set it to {width} if that is "
        "the width of the whole file, else repair or drop the line"
    )
