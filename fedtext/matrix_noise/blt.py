"""Optimal buffered linear Toeplitz matrices (Dvijotham et al. 2024; for several participations McMahan et al. 2024).

Legend: N rounds, D buffers.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedtext.matrix_noise.banded import DIGITS, Goal, error_weights, minimise
from fedtext.matrix_noise.toeplitz import buffered_column, divide, first_pattern

_LARGEST = 1 - 10.0**-DIGITS  # of a decay


@lru_cache(maxsize=64)
def optimal_buffers(
    rounds: int, separation: int, buffers: int, goal: Goal = "mean"
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the decays and scales with the smallest error of prefix sums times sensitivity that is found, rounded.

    They are theta_j = 1 / (1 + exp(-u_j)) and omega_j = exp(v_j) / (1 + sum exp(v_i)) for free u and v, so that c does
    not increase: 0 < theta_j < 1, omega_j > 0 and sum omega_j < 1. The loss is not convex; L-BFGS begins at three
    places, whose best end is taken. Where decays coincide the loss is flat, and another version of scipy or another
    processor may end at other coefficients with the same error; a run is continued with those it was begun with,
    which its checkpoints have.

    Args:
        rounds: N.
        separation: Least number of rounds from one participation of a client to its next.
        buffers: D.
        goal: Which error.

    Raises:
        UserError: scipy is not installed.
    """
    weights_N = error_weights(rounds, goal)

    def loss(free: NDArray[np.float64]) -> float:
        return _loss(*_parts(free), separation, weights_N)

    ends = [minimise(loss, start, gradient=False, steps=300) for start in _starts(rounds, separation, buffers)]
    decays, scales = _parts(min(ends, key=loss))
    order = np.argsort(-decays)
    decays, scales = np.minimum(np.round(decays[order], DIGITS), _LARGEST), np.round(scales[order], DIGITS)
    if scales.sum() > 1:  # by rounding
        scales *= (1 - 10.0**-DIGITS) / scales.sum()
    return tuple(decays.tolist()), tuple(scales.tolist())


def _parts(free: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    decays_D, scales_D = np.split(np.clip(free, -30, 30), 2)
    powers_D = np.exp(scales_D)
    return 1 / (1 + np.exp(-decays_D)), powers_D / (1 + powers_D.sum())


def _loss(
    decays_D: NDArray[np.float64], scales_D: NDArray[np.float64], separation: int, weights_N: NDArray[np.float64]
) -> float:
    """The logarithm of squared sensitivity times squared error.

    c(x) = 1 + sum_j omega_j x / (1 - theta_j x) is a quotient of two polynomials of degree D, and so is its inverse.
    """
    column_N = buffered_column(decays_D, scales_D, len(weights_N))
    below = np.ones(1)
    for decay in decays_D:
        below = np.convolve(below, [1.0, -decay])
    above = below.copy()
    for place, scale in enumerate(scales_D):
        others = np.ones(1)
        for decay in np.delete(decays_D, place):
            others = np.convolve(others, [1.0, -decay])
        above[1:] += scale * others
    beta_N = np.cumsum(divide(below, above, len(weights_N)))
    return float(2 * np.log(first_pattern(column_N, separation)) + np.log(weights_N @ beta_N**2))


def _starts(rounds: int, separation: int, buffers: int) -> list[NDArray[np.float64]]:
    """Memories 1 / (1 - theta), in rounds, at equal distances of their logarithms, and scales that add up to 1/2."""
    made = []
    for least, reach in ((2.0, rounds), (1.05, min(rounds, separation)), (1.5, 8 * rounds)):
        most = max(float(reach), 2 * least)
        places = np.linspace(0, 1, buffers) if buffers > 1 else np.array([0.5])
        memory = least * (most / least) ** places
        share = memory**-0.5 / np.sum(memory**-0.5) / 2
        made.append(np.concatenate([np.log(memory - 1), np.log(2 * share)]))
    return made
