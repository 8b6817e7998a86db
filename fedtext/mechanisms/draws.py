"""Many random bits with different probabilities, from a quarter of the usual number of random numbers.

The sign of a number determines the more probable value of its bit. The draw decides whether the bit has the other
value, whose probability r is at most 1/2. One random byte is nearly always enough: only if it equals the first byte of
r, once in 256 times, 64 more bits are drawn and compared with the rest of r. The smallest r, on which a local guarantee
depends, is compared in double precision and is exact to a relative error of 1e-12.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEVELS = 256
_CHUNK = 1 << 16  # coordinates at a time, so that intermediate results stay in the cache
_REST = 2.0**64


def bernoulli(numbers: NDArray[Any], slope: float, least: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw independent random bits. The bit of x is 1 with probability 1/2 + slope x, clipped to [least, 1 - least].

    Args:
        numbers: Finite x, of any shape.
        slope: Slope of the probability.
        least: Smallest probability of a bit, 0 to 1/2.
        rng: Source of random numbers.

    Returns:
        Bits of the shape of ``numbers``.
    """
    bits = np.empty(numbers.shape, np.bool_)
    flat_N, bits_N = np.ravel(numbers), bits.reshape(-1)
    size = min(_CHUNK, len(flat_N))
    chance_C, level_C, side_C = np.empty(size, np.float32), np.empty(size, np.uint8), np.empty(size, np.bool_)
    steep, floor_C = (
        np.float32(-_LEVELS * abs(slope)),
        np.full(size, _below(_LEVELS * least)),
    )  # an array: 6 times faster
    for start in range(0, len(flat_N), _CHUNK):
        part, into = flat_N[start : start + _CHUNK], bits_N[start : start + _CHUNK]
        chance, level, side = chance_C[: len(part)], level_C[: len(part)], side_C[: len(part)]
        np.abs(part, out=chance)
        np.multiply(chance, steep, out=chance)
        np.add(chance, np.float32(_LEVELS / 2), out=chance)
        np.maximum(chance, floor_C[: len(part)], out=chance)
        np.copyto(level, chance, casting="unsafe")  # rounds down
        first = rng.bit_generator.random_raw(-(-len(part) // 8)).view(np.uint8)[: len(part)]
        np.less(first, level, out=into)
        open_ = np.flatnonzero(first == level)
        into[open_] = rng.bit_generator.random_raw(len(open_)) < _rest(part[open_], slope, least, level[open_])
        np.greater(part, 0, out=side) if slope > 0 else np.less(part, 0, out=side)
        np.logical_xor(into, side, out=into)
    return bits


def _rest(numbers: NDArray[Any], slope: float, least: float, levels: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the rest of each r after its first byte, in units of 2^-72."""
    chance = np.maximum(0.5 - abs(slope) * np.abs(numbers.astype(np.float64)), least)
    rest = np.clip((_LEVELS * chance - levels) * _REST, 0, np.nextafter(_REST, 0))
    return rest.astype(np.uint64)


def _below(number: float) -> np.float32:
    """Return the largest float32 that is not greater than a number, so that both have the same first byte."""
    close = np.float32(number)
    return close if float(close) <= number else np.nextafter(close, np.float32(-math.inf))
