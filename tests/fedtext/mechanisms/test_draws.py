"""Random bits of randomised response: the probability of a flip is the one that epsilon claims."""

import hashlib
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtext.mechanisms import Quantize, RandomizedResponse
from fedtext.mechanisms.draws import bernoulli


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 2.0, math.log(255), 5.0, 8.0, 10.0, 12.0, 14.0, 15.7, 16.0])
def test_a_flip_realises_its_epsilon(epsilon: float) -> None:
    """A number far beyond q, of either sign: the bit is the unlikely one exactly for the byte and the 64 bits below its
    probability, counted here in whole numbers."""
    step = RandomizedResponse(epsilon=epsilon).behind(Quantize(q=0.001))
    for value in (1.0, -1.0):
        whole, rest = None, None
        low, high = 0, 256  # bytes below `whole` always flip
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if _bit(step, value, middle, 2**64 - 1) == (value < 0) else (low, middle)
        whole = low
        low, high = 0, 2**64
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if _bit(step, value, whole, middle) == (value < 0) else (low, middle)
        rest = low
        flip = (whole + Fraction(rest, 2**64)) / 256
        realised = math.log((1 - flip) / flip)
        assert abs(realised - epsilon) <= 1e-12 * max(1, epsilon)


class _Fixed:
    """A generator whose first words are all of one byte, and whose next ones are one number."""

    def __init__(self, byte: int, rest: int) -> None:
        self.words = iter([byte * 0x0101010101010101, rest])
        self.bit_generator = self

    def random_raw(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, next(self.words), np.uint64)


def _bit(step: Any, value: float, byte: int, rest: int) -> bool:
    (bit,) = step({"w": np.array([value], np.float32)}, {}, _Fixed(byte, rest))["w"]
    return bool(bit)


def drawn(numbers: list[float], slope: float, least: float, byte: int, rest: int) -> list[bool]:
    found = bernoulli(np.array(numbers), slope, least, _Fixed(byte, rest))  # type: ignore[arg-type]
    assert found.dtype == np.bool_
    return [bool(bit) for bit in found]


@pytest.mark.parametrize("slope", [1.0, -1.0])
def test_a_bit_takes_the_unlikely_value_exactly_below_its_probability(slope: float) -> None:
    """P(1) = 1/2 + slope x. At |x| = 63.5 / 256 the unlikely value has r = 64.5 / 256: the byte 64 and 63 of 64 further
    bits. At |x| = 64 / 256 it has r = 64 / 256, with no bit behind the byte. The bit of x > 0 is likely 1."""
    for x in (63.5 / 256, -63.5 / 256):
        likely = slope * x > 0
        for byte, rest, unlikely in (
            (0, 2**64 - 1, True),
            (63, 2**64 - 1, True),
            (64, 0, True),
            (64, 2**63 - 1, True),
            (64, 2**63, False),
            (64, 2**64 - 1, False),
            (65, 0, False),
            (255, 0, False),
        ):
            assert drawn([x], slope, 0.0, byte, rest) == [likely != unlikely], (x, byte, rest)
    for byte, rest, unlikely in ((63, 2**64 - 1, True), (64, 0, False), (64, 1, False)):
        assert drawn([0.25], slope, 0.0, byte, rest) == [(slope > 0) != unlikely]


def test_no_chance_is_below_the_least_and_zero_is_as_likely_as_one() -> None:
    """Of numbers far out: with least = 1/256 the byte 0 alone gives the unlikely value, with least = 0 none does; and
    of an x of 0 bytes below 128 do."""
    assert drawn([1e9, -1e9], 1.0, 1 / 256, 0, 2**64 - 1) == [False, True]
    assert drawn([1e9, -1e9], 1.0, 1 / 256, 1, 0) == [True, False]
    assert drawn([1e9, -1e9], 1.0, 0.0, 0, 0) == [True, False]
    for slope in (1.0, -1.0):
        assert drawn([0.0], slope, 0.0, 127, 2**64 - 1) != drawn([0.0], slope, 0.0, 128, 0)


def test_each_of_many_numbers_has_its_own_bit_whatever_their_shape() -> None:
    """More than are drawn at a time. Each count is within five deviations of its probability."""
    rng, count = np.random.default_rng(0), 70_000
    levels = np.array([-0.6, -0.3, 0.0, 0.1, 0.45], np.float32)
    bits = bernoulli(np.tile(levels, (count, 1)), 1.0, 0.05, rng)
    assert bits.shape == (count, 5)
    for found, chance in zip(bits.mean(0), [0.05, 0.2, 0.5, 0.6, 0.95], strict=True):
        assert abs(found - chance) < 5 * math.sqrt(chance * (1 - chance) / count)
    assert abs(np.corrcoef(bits[:, 2], bits[:, 3])[0, 1]) < 5 / math.sqrt(count)
    assert bernoulli(np.zeros((0, 3)), 1.0, 0.05, rng).shape == (0, 3)


def test_the_draws_of_a_key_are_those_of_this_version() -> None:
    """Whoever changes how many words a draw takes gives reproducible runs other noise: RESULTS of
    fedtext/state/fingerprint.py is raised then."""
    numbers = np.linspace(-1, 1, 70_003)  # more than one chunk, and not a multiple of eight
    bits = bernoulli(numbers, 0.3, 0.1, np.random.Generator(np.random.Philox(key=7)))
    assert hashlib.sha256(np.packbits(bits).tobytes()).hexdigest()[:16] == "f0343c8660294290"
