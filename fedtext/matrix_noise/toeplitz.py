"""Strategies whose matrix C is lower-triangular and Toeplitz: its first column c has all of it, with c_0 = 1.

Products and inverses of such matrices are those of power series: C^-1 has the coefficients of 1 / c(x), and B = A C^-1
those of 1 / ((1 - x) c(x)).
"""

from abc import abstractmethod
from collections import deque

import numpy as np
from numpy.typing import NDArray

from fedtext.errors import UserError
from fedtext.matrix_noise.strategy import Draw, Strategy, Stream

INSTALL = "scipy is not installed, and the coefficients of correlated noise need it: pip install 'fedtext[ledger]'"


def divide(numerator: NDArray[np.float64], denominator: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the first coefficients of numerator(x) / denominator(x).

    Args:
        numerator: Coefficients of a polynomial or a power series; those that it lacks are 0.
        denominator: Coefficients of a polynomial, the first of which is not 0.
        count: How many are returned.

    Raises:
        UserError: scipy is not installed.
    """
    try:
        from scipy.signal import lfilter
    except ImportError as error:
        raise UserError(INSTALL) from error
    padded = np.zeros(count)
    padded[: len(numerator)] = numerator[:count]
    return np.asarray(lfilter([1.0], denominator, padded))


def first_pattern(column: NDArray[np.float64], separation: int) -> float:
    """Return ||C u||, with u the indicator of the rounds 1, 1 + b, 1 + 2 b, ..., b the separation.

    This is the sensitivity of C for all patterns with this separation if c is not negative and does not increase, or
    if it has no more than b coefficients other than 0.

    Proof. Let i_1 < ... < i_k be a client's rounds, counted from 0, and x_l its updates, of norm 1 or less. Then
    i_l >= (l - 1) b, i_m - i_l >= (m - l) b, and ||sum_l C[:, i_l] x_l||^2 = sum_lm <C[:, i_l], C[:, i_m]> <x_l, x_m>.
    In the first case no product of columns is negative, so that this is at most their sum, reached by equal updates.
    For l <= m the product is sum_t c_t c_(t + i_m - i_l) over 0 <= t < N - i_m: with i_l = (l - 1) b for all l it has
    at least as many terms, each at least as large; and a client that takes part once more adds none below 0. In the
    second case columns of different rounds have no row in common, and what remains are the squared norms of columns,
    which do not increase from one column to the next (Kalinin and Lampert 2024, theorem 2, is the first case).

    Args:
        column: c, one coefficient for each round.
        separation: b.
    """
    separation = min(separation, len(column))
    total = np.zeros(-(-len(column) // separation) * separation)
    total[: len(column)] = column
    summed = np.cumsum(total.reshape(-1, separation), axis=0).ravel()[: len(column)]
    return float(np.linalg.norm(summed))


class Toeplitz(Strategy):
    """Base of these strategies.

    Args:
        rounds: Number of rounds, N.
        separation: Least number of rounds from one participation of a client to its next, b.
        column: c; what it lacks of N coefficients is 0.

    Raises:
        ValueError: No sensitivity is known for such coefficients and this separation.
    """

    def __init__(self, rounds: int, separation: int, column: NDArray[np.float64]) -> None:
        super().__init__(rounds, separation)
        self.column = np.zeros(rounds)
        self.column[: len(column)] = column[:rounds]
        falling = bool((self.column >= 0).all() and (np.diff(self.column) <= 0).all())
        if self.column[0] != 1 or not (falling or not self.column[separation:].any()):
            raise ValueError(
                f"no sensitivity is known for participations {separation} rounds apart: the coefficients must begin "
                f"with 1, and either not increase from there and not be negative, or be 0 from number {separation} on"
            )

    def sensitivity(self, rounds: int | None = None) -> float:
        return first_pattern(self.column[: self.rounds if rounds is None else rounds], self.separation)

    def alone(self) -> float:
        return float(np.linalg.norm(self.column))

    def variances(self) -> NDArray[np.float64]:
        return np.cumsum(np.square(np.cumsum(self.inverse())))

    @abstractmethod
    def inverse(self) -> NDArray[np.float64]:
        """Return the first column of C^-1."""


class Banded(Toeplitz):
    """C is banded: c_t = 0 from the number of bands on. ``optimal_bands`` computes the others.

    y_t = z_t - sum_(1 <= j < bands) c_j y_(t - j): bands - 1 earlier rounds are kept in memory.

    Args:
        rounds: Number of rounds.
        separation: Least number of rounds from one participation of a client to its next.
        bands: c, with one coefficient for each band.
    """

    def __init__(self, rounds: int, separation: int, bands: tuple[float, ...]) -> None:
        super().__init__(rounds, separation, np.array(bands))
        self.bands = bands

    @property
    def coefficients(self) -> tuple[float, ...]:
        return self.bands

    def inverse(self) -> NDArray[np.float64]:
        return divide(np.ones(1), np.array(self.bands), self.rounds)

    def stream(self) -> Stream:
        return _Recursive(self.bands)


class InverseBanded(Toeplitz):
    """C^-1 is banded: y_t = sum_(0 <= j < bands) d_j z_(t - j). ``inverse_square_root`` gives the coefficients d.

    Args:
        rounds: Number of rounds.
        separation: Least number of rounds from one participation of a client to its next.
        bands: d, with one coefficient for each band.
    """

    def __init__(self, rounds: int, separation: int, bands: tuple[float, ...]) -> None:
        super().__init__(rounds, separation, divide(np.ones(1), np.array(bands), rounds))
        self.bands = bands

    @property
    def coefficients(self) -> tuple[float, ...]:
        return self.bands

    def inverse(self) -> NDArray[np.float64]:
        whole = np.zeros(self.rounds)
        whole[: len(self.bands)] = self.bands[: self.rounds]
        return whole

    def stream(self) -> Stream:
        return _Window(self.bands)


class Buffered(Toeplitz):
    """C is a buffered linear Toeplitz matrix (BLT): c_t = sum_j omega_j theta_j^(t - 1) for t >= 1.

    y_t = z_t - sum_j omega_j m_j with a buffer m_j <- theta_j m_j + y_t for each j: memory does not depend on rounds.
    ``optimal_buffers`` computes both.

    Args:
        rounds: Number of rounds.
        separation: Least number of rounds from one participation of a client to its next.
        decays: theta, one for each buffer.
        scales: omega.
    """

    def __init__(self, rounds: int, separation: int, decays: tuple[float, ...], scales: tuple[float, ...]) -> None:
        super().__init__(rounds, separation, buffered_column(np.array(decays), np.array(scales), rounds))
        self.decays, self.scales = decays, scales

    @property
    def coefficients(self) -> tuple[float, ...]:
        return self.decays + self.scales

    def inverse(self) -> NDArray[np.float64]:
        """The noise of a single draw in the first round. Polynomials of this degree would lose digits."""
        decays, scales = np.array(self.decays), np.array(self.scales)
        found, buffers = np.zeros(self.rounds), np.zeros(len(decays))
        for round_ in range(self.rounds):
            found[round_] = (round_ == 0) - scales @ buffers
            buffers = decays * buffers + found[round_]
        return found

    def stream(self) -> Stream:
        return _Buffers(self.decays, self.scales)


def buffered_column(decays: NDArray[np.float64], scales: NDArray[np.float64], rounds: int) -> NDArray[np.float64]:
    """Return the first column of a buffered linear Toeplitz matrix.

    Args:
        decays: theta.
        scales: omega.
        rounds: Number of coefficients.
    """
    powers = np.power(decays[:, None], np.arange(rounds - 1)[None, :])
    return np.concatenate([[1.0], scales @ powers])


class _Recursive(Stream):
    def __init__(self, bands: tuple[float, ...]) -> None:
        self.bands = bands
        self.past: deque[NDArray[np.float64]] = deque(maxlen=len(bands) - 1)  # the last round's first

    def step(self, draw: Draw) -> NDArray[np.float64]:
        noise_P = draw(0)
        for coefficient, past_P in zip(self.bands[1:], self.past, strict=False):
            noise_P -= coefficient * past_P
        self.past.appendleft(noise_P)
        return noise_P


class _Window(Stream):
    def __init__(self, bands: tuple[float, ...]) -> None:
        self.bands = bands
        self.past: deque[NDArray[np.float64]] = deque(maxlen=len(bands) - 1)  # the last round's first

    def step(self, draw: Draw) -> NDArray[np.float64]:
        drawn_P = draw(0)
        noise_P = self.bands[0] * drawn_P
        for coefficient, past_P in zip(self.bands[1:], self.past, strict=False):
            noise_P += coefficient * past_P
        self.past.appendleft(drawn_P)
        return noise_P


class _Buffers(Stream):
    def __init__(self, decays: tuple[float, ...], scales: tuple[float, ...]) -> None:
        self.decays, self.scales = decays, scales
        self.buffers: list[NDArray[np.float64]] = []

    def step(self, draw: Draw) -> NDArray[np.float64]:
        noise_P = draw(0)
        for scale, buffer_P in zip(self.scales, self.buffers, strict=False):
            noise_P -= scale * buffer_P
        if not self.buffers:
            self.buffers = [noise_P.copy() for _ in self.decays]
            return noise_P
        for decay, buffer_P in zip(self.decays, self.buffers, strict=True):
            buffer_P *= decay
            buffer_P += noise_P
        return noise_P
