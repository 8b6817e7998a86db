"""The polynomial rolling hash of the RR-LDP paper (section 3.2), which encodes words without a vocabulary.

H(s) = sum_i s_i P^(i-1) mod M with a = 1, ..., z = 26 and P = 31. Equation 6 has P^i, but in its examples ("dog" is
2196, "cats and dogs" 283, 4279, 3225) the factor of the first letter is P^0, as it is here.

The map is public and unsalted: anyone who sees a bucket can look up its words. It protects nothing by itself; it avoids
the exchange of a vocabulary.

Legend: N texts, T words of all texts laid end to end, and of a piece of them: W words, L characters.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

_P = 31
_BLANKS = b"\t\n\v\f\r\x1c\x1d\x1e\x1f "  # the ASCII characters at which str.split splits
_TO_BLANK = bytes.maketrans(_BLANKS, b" " * len(_BLANKS))
_PIECE = 1 << 16  # characters
_DROPPED = bytes(set(range(256)) - set(range(ord("a"), ord("z") + 1)) - set(_BLANKS))


def letters(text: str) -> str:
    """Clean a text for the hash: ``"Don't" 10/10`` becomes ``dont``.

    Words are in lower case and separated by single blanks. All characters but a to z are removed, and so are words that
    are empty then.
    """
    text = text.lower()
    if not text.isascii():
        text = " ".join(text.split())  # blanks that are not ASCII separate words too
    text = text.encode("ascii", "ignore").translate(_TO_BLANK, _DROPPED).decode("ascii").strip()
    while "  " in text:
        text = text.replace("  ", " ")
    return text


def hash_texts(texts: Iterable[str], buckets: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Hash the words of texts that ``letters`` has cleaned.

    Returns:
        The bucket of each word, 0 to M - 1, shape (T,), and the offsets of texts, shape (N + 1,).
    """
    found, counts = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for lines in _pieces(texts):
        parts, ends = _hash_lines(lines, buckets)
        found.append(parts)
        counts.append(np.diff(ends, prepend=0))
    return np.concatenate(found), np.cumsum(np.concatenate(counts))


def _pieces(texts: Iterable[str]) -> Iterator[str]:
    """Join texts to pieces with a text in each line, small enough for the processor's cache."""
    lines: list[str] = []
    size = 0
    for text in texts:
        lines.append(text)
        size += len(text)
        if size > _PIECE:
            yield "\n".join(lines)
            lines, size = [], 0
    if lines:
        yield "\n".join(lines)


def _hash_lines(lines: str, buckets: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the bucket of each word, and the number of words up to the end of each line."""
    codes_L = np.frombuffer(f"{lines}\n".encode("ascii"), np.uint8)
    is_letter_L = codes_L >= ord("a")
    starts_W = np.flatnonzero(is_letter_L & ~np.concatenate([[False], is_letter_L[:-1]]))
    ends = np.searchsorted(starts_W, np.flatnonzero(codes_L == ord("\n")))
    if not len(starts_W):
        return np.zeros(0, np.int32), ends
    values_L = (codes_L[starts_W[0] :].astype(np.int64) - (ord("a") - 1)) * is_letter_L[starts_W[0] :]
    assert values_L.max() <= 26, "only a to z"
    lengths_W = np.diff(starts_W, append=len(codes_L))  # with the blanks after a word, which add 0
    place_L = np.arange(len(values_L)) - np.repeat(starts_W - starts_W[0], lengths_W)
    # Each term is below 26 M: the sum would exceed 64 bits only for a word of more than 10^8 letters.
    terms_L = values_L * _powers(int(lengths_W.max()), buckets)[place_L]
    return (np.add.reduceat(terms_L, starts_W - starts_W[0]) % buckets).astype(np.int32), ends


def _powers(count: int, buckets: int) -> NDArray[np.int64]:
    power, powers = 1 % buckets, []
    for _ in range(count):
        powers.append(power)
        power = power * _P % buckets
    return np.array(powers, np.int64)


def rolling_hash(word: str, buckets: int) -> int:
    """Return the bucket of one word of a to z."""
    ids, _ = hash_texts([word], buckets)
    (bucket,) = ids.tolist()
    return bucket


def buckets(text: str, count: int) -> list[int]:
    """Return the distinct buckets of a text, ascending: the indices of the ones in the paper's binary vector."""
    return np.unique(hash_texts([letters(text)], count)[0]).tolist()
