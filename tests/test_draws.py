"""Random bits of randomised response: the probability of a flip is the one that epsilon claims."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtext.mechanisms import Quantize, RandomizedResponse


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
