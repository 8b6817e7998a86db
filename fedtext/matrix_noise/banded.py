"""Optimal coefficients of a banded Toeplitz strategy (Choquette-Choo et al. 2023, Banded Matrix Factorization).

Legend: N rounds, D bands.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtext.errors import UserError
from fedtext.matrix_noise.square_root import square_root
from fedtext.matrix_noise.toeplitz import INSTALL, divide

Goal = Literal["mean", "max"]
DIGITS = 6  # after the decimal point, so that rounding on another processor does not change the coefficients


@lru_cache(maxsize=64)
def optimal_bands(rounds: int, separation: int, bands: int, goal: Goal = "mean") -> tuple[float, ...]:
    """Return the coefficients with the smallest error of prefix sums times sensitivity, rounded.

    With c_0 = 1 it minimises, by L-BFGS from the first coefficients of A^(1/2), the product of S = sum_t m_t c_t^2, the
    squared sensitivity, with m_t = floor((N - 1 - t) / b) + 1, and E = sum_s w_s beta_s^2, where beta has the
    coefficients of 1 / ((1 - x) c(x)) and w_s is (N - s) / N for the mean error and 1 for the largest.

    Args:
        rounds: N.
        separation: b, the least number of rounds between participations; no less than ``bands``.
        bands: D, the number of coefficients.
        goal: Which error.

    Raises:
        UserError: scipy is not installed.
    """
    bands = min(bands, rounds)
    start = np.array(square_root(bands))
    if bands == 1:
        return (1.0,)
    weights_N = error_weights(rounds, goal)
    times_D = (rounds - 1 - np.arange(bands)) // separation + 1.0

    def loss(free: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """log S + log E, and its gradient: d beta / d c_j has the coefficients of -x^j beta(x) / c(x)."""
        column_D = np.concatenate([[1.0], free])
        beta_N = np.cumsum(divide(np.ones(1), column_D, rounds))
        moved_N = divide(beta_N, column_D, rounds)
        squared, error = float(times_D @ column_D**2), float(weights_N @ beta_N**2)
        pull_N = weights_N * beta_N
        by_error = [-2 * float(pull_N[j:] @ moved_N[: rounds - j]) for j in range(1, bands)]
        return np.log(squared) + np.log(error), 2 * (times_D * column_D)[1:] / squared + np.array(by_error) / error

    found = minimise(loss, start[1:], gradient=True)
    return (1.0, *np.round(found, DIGITS).tolist())


def error_weights(rounds: int, goal: Goal) -> NDArray[np.float64]:
    """Return the weight of each squared coefficient of B in the squared error: the share of rounds that have it."""
    return np.ones(rounds) if goal == "max" else np.arange(rounds, 0, -1) / rounds


def minimise(
    loss: Callable[..., Any], start: NDArray[np.float64], gradient: bool, steps: int = 2000
) -> NDArray[np.float64]:
    """Return where L-BFGS ends.

    Args:
        loss: The function; with ``gradient`` it returns its gradient too.
        start: Where it begins.
        gradient: Whether it does; otherwise finite differences are taken.
        steps: How many at most.

    Raises:
        UserError: scipy is not installed.
    """
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise UserError(INSTALL) from error
    options = {"maxiter": steps, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(loss, start, jac=gradient or "3-point", method="L-BFGS-B", options=options)
    return np.asarray(found.x)
