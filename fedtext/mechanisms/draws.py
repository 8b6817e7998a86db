"""Many random bits, each with a probability of its own, for a quarter of the usual random numbers.

Whether a uniform number lies below a probability is nearly always settled by its first byte. Only where that byte
equals the probability's own, once in 256 times, is the rest of it drawn. Probabilities hold to 2^-24, as in float32.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEVELS = 256
_CHUNK = 1 << 16  # numbers at a time, so that intermediate results stay in the cache


def bernoulli(
    numbers: NDArray[Any], slope: float, intercept: float, low: float, high: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """A bit for each number x, which is 1 with probability slope x + intercept, kept between ``low`` and ``high``."""
    bits = np.empty(numbers.shape, np.bool_)
    flat_N, bits_N = np.ravel(numbers), bits.reshape(-1)
    size = min(_CHUNK, len(flat_N))
    chance_C, level_C = np.empty(size, np.float32), np.empty(size, np.int16)
    a, b, least, most = (np.float32(_LEVELS * number) for number in (slope, intercept, low, high))
    for start in range(0, len(flat_N), _CHUNK):
        part, into = flat_N[start : start + _CHUNK], bits_N[start : start + _CHUNK]
        chance, level = chance_C[: len(part)], level_C[: len(part)]
        np.multiply(part, a, out=chance)
        np.add(chance, b, out=chance)
        np.clip(chance, least, most, out=chance)
        np.copyto(level, chance, casting="unsafe")  # rounds down
        first = rng.bit_generator.random_raw(-(-len(part) // 8)).view(np.uint8)[: len(part)]
        np.less(first, level, out=into)
        open_ = np.flatnonzero(first == level)
        into[open_] = rng.random(len(open_)) < chance[open_] - level[open_]
    return bits
