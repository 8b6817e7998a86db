"""Lower bounds on epsilon from guesses about canaries, in one run.

Each canary is in the run with probability 1/2, independently of the others. Someone who sees what the run releases
guesses of r of the m canaries whether they were in it, and v guesses are right. If the run were (epsilon,
delta)-private, v or more right guesses would have a small probability: a lower bound with 95 % confidence is the
largest epsilon for which it is at most 5 %. r is chosen before the run.

scipy is imported on demand.

Legend: K canaries of a group, R right guesses from v down to 0.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting import composition

_LARGEST = 64.0  # the largest bound that is given: more would need more guesses than any memory has room for
_CLOSE = 1e-9  # of a bound


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return an upper bound on the probability of v or more right guesses (Steinke et al. 2023, theorem 5.2).

    With q = e^epsilon / (1 + e^epsilon), B binomial of ``guesses`` and q, and beta = P(B >= v), it is
    beta + 2 m delta max_i (P(B >= v - i) - beta) / i.

    Args:
        canaries: m, the number of canaries.
        guesses: r, the number of guesses.
        right: v, how many of them are right.
        epsilon, delta: The guarantee that is tested.
    """
    from scipy.special import betainc, expit

    least_R = np.arange(right, 0, -1)
    tails_R = np.ones(right + 1)  # P(B >= v), P(B >= v - 1), ..., P(B >= 0) = 1
    tails_R[:-1] = betainc(least_R, guesses - least_R + 1, expit(epsilon))
    slack = float(((tails_R[1:] - tails_R[0]) / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, float(tails_R[0]) + 2 * canaries * delta * slack)


def lower_bound(canaries: int, guesses: int, right: int, confidence: float, delta: float) -> float:
    """Return the epsilon that a run has at least (Steinke et al. 2023).

    Args:
        canaries: m, the number of canaries.
        guesses: r, the number of guesses, chosen before the run.
        right: v, how many of them are right.
        confidence: Probability, over all draws of the run, with which the bound holds at least.
        delta: Where epsilon is bounded.
    """
    rejected = 1 - confidence
    return _last(lambda epsilon: rejected - p_value(canaries, guesses, right, epsilon, delta))


def gaussian_lower_bound(canaries: int, guesses: int, right: int, confidence: float, delta: float) -> float:
    """Return the epsilon that a run has at least if its trade-off curve is that of Gaussian noise.

    This is the test of Mahloujifar et al. 2024 (algorithm 3) for mu-Gaussian differential privacy: the largest mu that
    it rejects is converted to epsilon at ``delta``. It is larger than ``lower_bound``, and holds for Gaussian noise
    without sampling exactly.

    Args:
        canaries: m, the number of canaries.
        guesses: r, the number of guesses, chosen before the run.
        right: v, how many of them are right.
        confidence: Probability with which the bound holds at least.
        delta: Where epsilon is bounded; more than 0.

    Raises:
        UserError: dp-accounting is not installed.
    """
    mu = _last(lambda mu: _excess(mu, canaries, guesses, right, 1 - confidence))
    return composition.gaussian(1 / mu, 1, delta) if mu else 0.0


def _excess(mu: float, canaries: int, guesses: int, right: int, rejected: float) -> float:
    """Return a positive number if mu-Gaussian differential privacy is rejected.

    h and r bound the probabilities of at least i right guesses where the last one is wrong or right, from v down to 0.
    They add up to more than the share of guesses only if the assumed probability of v right guesses is too large.
    """
    from scipy.special import ndtr, ndtri

    r, h = rejected * right / canaries, rejected * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        following = max(h, float(ndtr(ndtri(r) - mu)))
        if following == h:
            break
        r, h = min(1.0, r + i / (guesses - i) * (following - h)), following
    return r + h - guesses / canaries


def _last(positive: Callable[[float], float]) -> float:
    """Return where a function that falls with its argument is 0; 0 if it is not positive there."""
    from scipy.optimize import brentq

    if positive(0.0) <= 0:
        return 0.0
    high = 1.0
    while positive(high) > 0:
        if high >= _LARGEST:
            return _LARGEST
        high *= 2
    return float(brentq(positive, 0.0, high, xtol=_CLOSE))


def estimate(inside_K: NDArray[np.float64], outside_K: NDArray[np.float64], delta: float) -> float:
    """Return an estimate of epsilon, without any confidence.

    As in Andrew et al. 2023, normal distributions are fitted to the scores of the canaries in the run and to those of
    the others, here with one variance. The estimate is the epsilon of Gaussian noise that shifts scores as far.

    Args:
        inside_K: Scores of canaries in the run; at least two.
        outside_K: Scores of the others; at least two.
        delta: Where epsilon is estimated; more than 0.

    Raises:
        UserError: dp-accounting is not installed.
    """
    freedom = len(inside_K) + len(outside_K) - 2
    squares = np.square(inside_K - inside_K.mean()).sum() + np.square(outside_K - outside_K.mean()).sum()
    shift = max(0.0, float(inside_K.mean() - outside_K.mean()))
    if not squares:
        return _LARGEST if shift else 0.0
    mu = shift / math.sqrt(float(squares) / freedom)
    return min(_LARGEST, composition.gaussian(1 / mu, 1, delta)) if mu else 0.0
