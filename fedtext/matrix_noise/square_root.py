"""The square root of the prefix-sum matrix, and its banded inverse.

A^(1/2) has the coefficients r_t = binomial(2 t, t) / 4^t of (1 - x)^(-1/2), and its inverse those of (1 - x)^(1/2).
"""

import numpy as np


def square_root(count: int) -> tuple[float, ...]:
    """Return the first coefficients of A^(1/2).

    Args:
        count: How many.
    """
    steps = np.arange(1, count)
    return (1.0, *np.cumprod((2 * steps - 1) / (2 * steps)).tolist())


def inverse_square_root(count: int) -> tuple[float, ...]:
    """Return the first coefficients of A^(-1/2): the banded inverse square root (Kalinin et al. 2025).

    The matrix C whose inverse has these bands and no others has a first column that is positive and does not increase.
    With -a_j these coefficients but the first one, a_j > 0, it is c_t = sum_(1 <= j < count) a_j c_(t - j). Its first
    ``count`` coefficients are those of A^(1/2), which fall. From there on c_t - c_(t - 1) = sum_j a_j (c_(t - j) -
    c_(t - j - 1)) is at most 0 by induction.

    Args:
        count: Number of bands.
    """
    steps = np.arange(1, count)
    return (1.0, *np.cumprod((2 * steps - 3) / (2 * steps)).tolist())
