"""Guarantees of noise in integers that many clients add, each a share of it.

Bounds of Renyi divergences between the sums of a round's integers with and without the update of a client:

- shares of discrete Gaussian noise (Kairouz, Liu and Steinke 2021, theorem 1 and proposition 14), whose sum is not
  quite a discrete Gaussian;
- shares of Skellam noise, whose sum is Skellam noise (Agarwal, Kairouz and Liu 2021, theorem 3.5 and corollary 4.1).

All lengths and variances are in steps: an integer 1 is one step.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from fedtext.accounting import composition

Kind = Literal["discrete_gaussian", "skellam"]
ORDERS = (*range(2, 65), *range(72, 257, 8), 320, 512, 1024, 4096)  # of Renyi divergences; the bound is of whole ones
LEAST = 0.25  # variance of a share, below which nothing is known of sums of discrete Gaussians
LARGEST = 2.0**52  # variance of a share: Skellam noise then is a difference of whole numbers that double precision has
REPEATED = math.exp(-0.5)  # beta: largest chance that an update is rounded again, since its norm has grown too much


@dataclass(frozen=True)
class Shares:
    """The noise of a round.

    Attributes:
        kind: Distribution of a share.
        variance: Variance of a share.
        count: Number of shares, each drawn by itself.
        sensitivity: Largest L2 norm of an update in integers.
        coordinates: Number of coordinates of an update.
    """

    kind: Kind
    variance: float
    count: int
    sensitivity: float
    coordinates: int

    @classmethod
    def unit(cls, kind: Kind, count: int, sensitivity: float, coordinates: int) -> "Shares":
        """Return shares with a noise multiplier of 1: the standard deviation of their sum is the sensitivity.

        Args:
            kind: Distribution of a share.
            count: Number of shares.
            sensitivity: Largest L2 norm of an update in integers.
            coordinates: Number of coordinates of an update.
        """
        return cls(kind, sensitivity**2 / count, count, sensitivity, coordinates)

    def times(self, multiplier: float) -> "Shares":
        """Return this noise with a standard deviation that is ``multiplier`` times as large."""
        return replace(self, variance=self.variance * multiplier**2)


def rounded_norm(norm: float, coordinates: int) -> float:
    """Return the largest L2 norm of an update after conditional rounding (Kairouz, Liu and Steinke 2021, theorem 1).

    Each coordinate becomes one of the two integers beside it, with the update's as mean; all are drawn again while the
    norm exceeds this. A drawing exceeds it with a probability of at most ``REPEATED``.

    Args:
        norm: The largest norm before.
        coordinates: Number d of coordinates.
    """
    root = math.sqrt(coordinates)
    likely = norm**2 + coordinates / 4 + math.sqrt(2 * math.log(1 / REPEATED)) * (norm + root / 2)
    return min(norm + root, math.sqrt(likely))


def divergence(noise: Shares, order: int) -> float:
    """Return a bound of the Renyi divergence of a round; infinity if none is known.

    Args:
        noise: The noise.
        order: Order of the divergence, a whole number above 1.
    """
    # of integers, an L1 norm is no more than the square of the L2 norm
    l1 = noise.sensitivity * min(math.sqrt(noise.coordinates), noise.sensitivity)
    bound = _gaussian if noise.kind == "discrete_gaussian" else _skellam
    return bound(noise, order, l1)


def _gaussian(noise: Shares, order: int, l1: float) -> float:
    if noise.variance < LEAST:
        return math.inf
    deviation = math.sqrt(noise.count * noise.variance)
    l2, l1, root, tau = noise.sensitivity / deviation, l1 / deviation, math.sqrt(noise.coordinates), _tau(noise)
    return min(
        order / 2 * l2**2 + tau * noise.coordinates,
        order / 2 * (l2**2 + 2 * l1 * tau + tau**2 * noise.coordinates),
        order / 2 * (l2 + root * tau) ** 2,
    )


def _tau(noise: Shares) -> float:
    """Return by how much the logarithms of probabilities of the sum may differ from those of a discrete Gaussian:
    10 sum_k exp(-2 pi^2 variance k / (k + 1))."""
    k_C = np.arange(1, noise.count)
    return 10 * float(np.exp(-2 * math.pi**2 * noise.variance * k_C / (k_C + 1)).sum())


def _skellam(noise: Shares, order: int, l1: float) -> float:
    total, squared = noise.count * noise.variance, noise.sensitivity**2
    beside = min(((2 * order - 1) * squared + 6 * l1) / (4 * total**2), 3 * l1 / (2 * total))
    return order * squared / (2 * total) + beside


def epsilon(noise: Shares, count: int, delta: float) -> float:
    """Compute epsilon at ``delta`` of ``count`` rounds, whose updates may depend on what was released before.

    Args:
        noise: The noise of each round.
        count: Number of rounds.
        delta: Delta of all of them together.
    """
    return several(((noise, count),), 0.0, delta)


@lru_cache(maxsize=4096)
def several(rounds: tuple[tuple[Shares, int], ...], inverse: float, delta: float) -> float:
    """Compute epsilon at ``delta`` of rounds with different noise, and of Gaussian mechanisms beside them.

    Args:
        rounds: The noise of each kind of round, and their number.
        inverse: Sum of the inverse squared noise multipliers of the Gaussian mechanisms; 0: there are none.
        delta: Delta of all of them together.
    """
    gaussian = [order / 2 * inverse for order in ORDERS]  # Mironov 2017, corollary 3
    each = [[count * divergence(noise, order) for order in ORDERS] for noise, count in rounds]
    bounds = [sum(of_order) for of_order in zip(gaussian, *each, strict=True)]
    return composition.of_renyi(ORDERS, bounds, delta) if math.isfinite(bounds[0]) else math.inf


@lru_cache(maxsize=256)
def multiplier_for(target: float, unit: Shares, rounds: int, delta: float) -> float:
    """Compute the smallest noise multiplier, to four digits, with which rounds spend at most ``target``.

    Args:
        target: The epsilon to reach.
        unit: The noise with a multiplier of 1.
        rounds: Number of rounds.
        delta: Delta of all of them together.

    Raises:
        UserError: dp-accounting is not installed, or no multiplier below a million is large enough.
    """
    return composition.smallest(lambda multiplier: epsilon(unit.times(multiplier), rounds, delta), target)
