"""Exact samples of noise in integers: discrete Gaussian, Skellam, and rounded Gaussian.

The first two are found by rejection. A candidate is accepted with a probability exp(-x), for which a uniform number U
is compared with exp(-x): in double precision where they are further apart than its error, and otherwise with as many
digits of both as it takes (about one comparison of 10^9). So no probability is rounded, however large the noise is.

Legend: N samples, C candidates.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting.distributed import LARGEST
from fedtext.errors import UserError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Integers]  # some candidates, those of them that were accepted

INSTALL = "privacy.noise: secret rounds the server's noise, and scipy is not installed: pip install 'fedtext[secret]'"
_DOUBT = 2.0**-30  # more than the error of any exp(-x) here in double precision
_FIRST = 2.0**-53  # of a uniform number in double precision: what follows is less than this
_INVERSE = 2.0**-44  # more than the relative error of Phi^-1 in double precision
_MORE = 64  # bits of a uniform number that are drawn at a time
_TOGETHER = 1 << 15  # candidates at a time, so that intermediate results stay in the cache
_SERIES = (1 / 12, 1 / 360, 1 / 1260, 1 / 1680, 1 / 1188)  # of Stirling's error, with alternating signs
_EXACT = 16  # below it Stirling's error is computed, from it on the series is exact to 1e-13


def discrete_gaussian(rng: np.random.Generator, variance: float, count: int) -> Integers:
    """Draw from the discrete Gaussian: P(y) ~ exp(-y^2 / (2 variance)) on the integers.

    By rejection from the discrete Laplace distribution (Canonne, Kamath and Steinke 2020, algorithm 3).

    Args:
        rng: Source of random numbers.
        variance: The parameter sigma^2, of which the variance is at most this; above 0 and at most ``LARGEST``.
        count: Number N of samples.

    Returns:
        The samples, shape (N,).
    """
    _check(variance)
    scale = math.isqrt(math.floor(variance)) + 1
    middle = variance / scale

    def draw(rng: np.random.Generator, count: int) -> Integers:
        found_C = _laplace(rng, scale, count)
        away_C = np.abs(found_C)

        def exponent(place: int) -> Any:
            from mpmath import mpf

            return (int(away_C[place]) - mpf(variance) / scale) ** 2 / (2 * mpf(variance))

        return found_C[_happens(rng, (away_C - middle) ** 2 / (2 * variance), exponent)]

    return _until(draw, rng, count)


def rounded_gaussian(rng: np.random.Generator, sigma: float, count: int) -> Integers:
    """Draw Gaussian numbers, rounded to integers: round(sigma Z), with Z standard normal.

    By inversion: a uniform number U of 53 bits decides which integer it is, unless the numbers that begin with these
    bits, or the error of Phi^-1 in double precision, allow two. Then more bits of U and more digits are taken.

    Args:
        rng: Source of random numbers.
        sigma: Standard deviation before rounding, at most 2^26.
        count: Number N of samples.

    Returns:
        The samples, shape (N,).

    Raises:
        UserError: scipy is not installed.
        ValueError: sigma is not one of these.
    """
    try:
        from scipy.special import ndtri
    except ImportError as error:
        raise UserError(INSTALL) from error
    if not 0 < sigma <= 2.0**26:
        raise ValueError(f"rounded Gaussian noise has a sigma above 0 and at most 2^26, not {sigma:g}")
    found_N = np.empty(count, np.int64)
    for start in range(0, count, _TOGETHER):
        uniform_C = rng.random(min(_TOGETHER, count - start))
        low_C, high_C = sigma * ndtri(uniform_C), sigma * ndtri(uniform_C + _FIRST)
        least_C = np.rint(low_C - _INVERSE * np.abs(low_C) - _FIRST)
        most_C = np.rint(high_C + _INVERSE * np.abs(high_C) + _FIRST)
        sure_C = least_C == most_C  # of equal infinities there are none
        found_C = found_N[start : start + len(uniform_C)]
        found_C[sure_C] = least_C[sure_C].astype(np.int64)
        for place in np.flatnonzero(~sure_C):
            found_C[place] = _inverted(rng, float(uniform_C[place]), sigma)
    return found_N


def _inverted(rng: np.random.Generator, uniform: float, sigma: float) -> int:
    """Return round(sigma Phi^-1(U)), with the first 53 bits of U given and the others drawn."""
    import mpmath

    for digits, numerator, bits in _bits(rng, uniform):
        with mpmath.workdps(digits + 20):
            ends = []
            for edge, away in ((numerator, -1), (numerator + 1, 1)):
                normal = mpmath.sqrt(2) * mpmath.erfinv(mpmath.ldexp(2 * edge, -bits) - 1)
                ends.append(mpmath.nint(sigma * normal + away * mpmath.mpf(10) ** -digits))
            if mpmath.isfinite(ends[0]) and ends[0] == ends[1]:
                return int(ends[0])
    raise AssertionError("digits have no end")


def _bits(rng: np.random.Generator, uniform: float) -> Iterator[tuple[int, int, int]]:
    """Yield digits to compute with, and a uniform number with ever more bits: its numerator, and how many they are."""
    numerator, bits = int(uniform / _FIRST), 53
    for digits in itertools.count(40, 40):
        while bits < 4 * digits:
            numerator = numerator << _MORE | int(rng.integers(0, 2**_MORE, dtype=np.uint64))
            bits += _MORE
        yield digits, numerator, bits


def skellam(rng: np.random.Generator, variance: float, count: int) -> Integers:
    """Draw from the symmetric Skellam distribution: the difference of two Poisson numbers of mean variance / 2.

    Args:
        rng: Source of random numbers.
        variance: Its variance, above 0 and at most ``LARGEST``.
        count: Number N of samples.

    Returns:
        The samples, shape (N,).
    """
    _check(variance)
    return poisson(rng, variance / 2, count) - poisson(rng, variance / 2, count)


def poisson(rng: np.random.Generator, mean: float, count: int) -> Integers:
    """Draw from the Poisson distribution, by rejection from the discrete Laplace distribution about its mean.

    Args:
        rng: Source of random numbers.
        mean: Its mean.
        count: Number N of samples.

    Returns:
        The samples, shape (N,).
    """
    middle, scale, most = _envelope(mean)
    at_middle = float(_log_poisson(np.array([middle]), mean)[0])

    def draw(rng: np.random.Generator, count: int) -> Integers:
        away_C = _laplace(rng, scale, count)
        away_C = away_C[away_C >= -middle]
        found_C = middle + away_C

        def exponent(place: int) -> Any:
            return most - _ratio(int(away_C[place]), mean, middle, scale)

        below_C = most - np.abs(away_C) / scale - (_log_poisson(found_C, mean) - at_middle)
        return found_C[_happens(rng, below_C, exponent)]

    return _until(draw, rng, count)


def _check(variance: float) -> None:
    if not 0 < variance <= LARGEST:
        raise ValueError(f"noise in integers has a variance above 0 and at most {LARGEST:g}, not {variance:g}")


def _until(draw: Draw, rng: np.random.Generator, count: int) -> Integers:
    """Return the first ``count`` accepted candidates."""
    found_N = np.empty(count, np.int64)
    done = 0
    while done < count:
        some = draw(rng, min(_TOGETHER, 2 * (count - done) + 16))[: count - done]
        found_N[done : done + len(some)] = some
        done += len(some)
    return found_N


def _laplace(rng: np.random.Generator, scale: int, count: int) -> Integers:
    """Draw from the discrete Laplace distribution, P(y) ~ exp(-|y| / scale): those of ``count`` candidates that are
    accepted (Canonne, Kamath and Steinke 2020, algorithm 2)."""
    within_C = rng.integers(0, scale, count)

    def exponent(place: int) -> Any:
        from mpmath import mpf

        return mpf(int(within_C[place])) / scale

    within_C = within_C[_happens(rng, within_C / scale, exponent)]
    whole_C = np.zeros(len(within_C), np.int64)
    going = np.arange(len(within_C))
    while going.size:
        going = going[_happens(rng, np.ones(going.size), lambda _: 1)]
        whole_C[going] += 1
    found_C = within_C + scale * whole_C
    negative_C = rng.integers(0, 2, len(found_C)).astype(bool)
    kept_C = ~negative_C | (found_C > 0)  # zero would count twice
    return np.where(negative_C, -found_C, found_C)[kept_C]


def _happens(rng: np.random.Generator, exponents_C: Floats, exponent: Callable[[int], Any]) -> NDArray[np.bool_]:
    """Return of each exponent x whether an event of probability exp(-x) happens.

    Args:
        rng: Source of random numbers.
        exponents_C: The exponents, each with an error far below ``_DOUBT``; none is negative.
        exponent: Returns the exponent at a place exactly: to the precision in which mpmath computes.
    """
    uniform_C, chance_C = rng.random(len(exponents_C)), np.exp(-exponents_C)
    happens_C = uniform_C < chance_C
    for place in np.flatnonzero(np.abs(uniform_C - chance_C) < _DOUBT):
        happens_C[place] = _settled(rng, float(uniform_C[place]), lambda: exponent(int(place)))  # noqa: B023
    return happens_C


def _settled(rng: np.random.Generator, uniform: float, exponent: Callable[[], Any]) -> bool:
    """Return whether a uniform number is below exp(-x).

    Args:
        rng: Source of its further bits.
        uniform: Its first 53 bits.
        exponent: Returns x to the precision in which mpmath computes.
    """
    import mpmath

    for digits, numerator, bits in _bits(rng, uniform):
        with mpmath.workdps(digits + 20):
            away = mpmath.exp(-exponent()) - mpmath.ldexp(numerator, -bits)
            if abs(away) > mpmath.mpf(10) ** -digits:  # 2^-bits, the rest of the number, is less than that
                return bool(away > 0)
    raise AssertionError("digits have no end")


@lru_cache(maxsize=64)
def _envelope(mean: float) -> tuple[int, int, float]:
    """Return of a Poisson distribution with this mean the whole number m below it, the scale t of the discrete Laplace
    distribution about m, and a bound of log(P(m + j) / P(m)) + |j| / t over all j.

    This is concave on either side of 0, with its largest values where P falls by a factor of exp(1 / t).
    """
    middle, scale = math.floor(mean), math.isqrt(math.floor(mean)) + 1
    right, left = math.floor(mean * math.exp(1 / scale)) - middle, middle - math.floor(mean * math.exp(-1 / scale))
    tried = {0, *range(right - 2, right + 3), *range(-left - 2, -left + 3)}
    largest = max(float(_ratio(away, mean, middle, scale)) for away in tried if away >= -middle)
    return middle, scale, largest + 1e-6


def _ratio(away: int, mean: float, middle: int, scale: int) -> Any:
    """Return log(P(m + j) / P(m)) + |j| / t of a Poisson distribution, exactly."""
    import mpmath

    with mpmath.workdps(mpmath.mp.dps + 40):  # the terms are far larger than their difference
        found = away * mpmath.log(mean) - mpmath.loggamma(middle + away + 1) + mpmath.loggamma(middle + 1)
        return found + mpmath.mpf(abs(away)) / scale


def _log_poisson(values_C: Integers, mean: float) -> Floats:
    """Return log P of a Poisson distribution with the error of a few roundings, by the saddle-point expansion (Loader
    2000): -log(2 pi k) / 2 - stirling(k) - (k log(k / mean) + mean - k)."""
    k_C = values_C.astype(np.float64)
    made_C = np.full(len(k_C), -mean)
    some = k_C > 0
    k = k_C[some]
    ratio = (k - mean) / (k + mean)
    squared, near = ratio * ratio, np.abs(ratio) < 0.5
    total, power = np.zeros_like(k), np.where(near, ratio * squared, 0.0)
    for odd in range(3, 63, 2):  # 2 k artanh(ratio) without its first term
        total += power / odd
        power *= squared
    with np.errstate(over="ignore"):
        away = np.where(near, (k - mean) * ratio + 2 * k * total, k * np.log(k / mean) + mean - k)
    made_C[some] = -0.5 * np.log(2 * math.pi * k) - _stirling(k) - away
    return made_C


def _stirling(k_C: Floats) -> Floats:
    """Return log k! - (log(2 pi k) / 2 + k log k - k), of k above 0."""
    small = [math.lgamma(k + 1) - (0.5 * math.log(2 * math.pi * k) + k * math.log(k) - k) for k in range(1, _EXACT)]
    inverse = 1 / k_C
    series = np.zeros_like(k_C)
    for place, coefficient in enumerate(_SERIES):
        series += (-1) ** place * coefficient * inverse ** (2 * place + 1)
    return np.where(k_C < _EXACT, np.array([0.0, *small])[np.minimum(k_C, _EXACT - 1).astype(int)], series)
