"""Composition of guarantees: pure ones here, of Gaussian noise by dp-accounting, which is imported where needed.

Legend: X possible numbers of bits that were told truly.
"""

import math
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from fedtext.errors import UserError

_ORDERS = [2, 2.25, 2.5, 2.75, 3, 3.5, *range(4, 17), 20, 24, 32, 48, 64, 128, 256]  # of Renyi divergence
_GRID, _LARGE = 1e-3, 100.0  # of privacy losses, and the epsilon up to which they are composed on it
_TAIL = 1e-30  # more than what lies outside the numbers that are looked at
_DIGITS = 4  # of a multiplier that is solved for: another version of a library finds the same one
INSTALL = "dp-accounting is not installed: pip install 'fedtext[ledger]'"


def basic(epsilon: float, count: int) -> float:
    """Of ``count`` epsilon-private steps: their sum, with delta = 0."""
    return epsilon * count


@lru_cache(maxsize=4096)
def optimal(epsilon: float, count: int, delta: float) -> float:
    """The smallest epsilon' for which any ``count`` epsilon-private steps, each chosen in view of all before it, are
    (epsilon', delta)-private together (Kairouz, Oh and Viswanath 2015, theorem 3.3): exactly that of ``count``
    randomised responses.

    Of these the privacy loss is (2 x - count) epsilon where x of them were true, a binomial number. It is summed over
    all x but those farther than 12 deviations out, which count as if they failed.
    """
    truth = 1 / (1 + math.exp(-epsilon))
    mode, deviation = count * truth, math.sqrt(count * truth * (1 - truth))
    reach = 12 * deviation + 100
    first, last = max(0, math.floor(mode - reach)), min(count, math.ceil(mode + reach))
    x_X = np.arange(first, last + 1, dtype=np.float64)
    ratios_X = np.log((count - x_X[:-1]) / (x_X[:-1] + 1)) + epsilon  # log P(x + 1) / P(x)
    log_X = np.concatenate([[0.0], np.cumsum(ratios_X)])
    chance_X = np.exp(log_X - log_X.max())
    chance_X /= chance_X.sum()
    loss_X = (2 * x_X - count) * epsilon
    budget = delta - _TAIL

    def over(place: int) -> tuple[float, float]:
        """P(loss >= loss[place]) and E exp(loss[place] - loss) there: delta of a smaller epsilon' follows from both."""
        part_X = chance_X[place:]
        return float(part_X.sum()), float((part_X * np.exp(loss_X[place] - loss_X[place:])).sum())

    low, high = 0, len(loss_X) - 1  # delta(loss[high]) = 0 is within the budget; look for the first that is
    while low < high:
        middle = (low + high) // 2
        mass, other = over(middle)
        low, high = (low, middle) if mass - other <= budget else (middle + 1, high)
    mass, other = over(low)  # between the loss before it and this one delta is mass - exp(epsilon' - loss) other
    return max(0.0, float(loss_X[low]) + math.log(max(mass - budget, 5e-324) / other))


def available() -> bool:
    """Return whether the library that composes Gaussian noise is installed."""
    try:
        _accounting()
    except UserError:
        return False
    return True


@lru_cache(maxsize=4096)
def gaussian(multiplier: float, count: int, delta: float) -> float:
    """Epsilon at ``delta`` of ``count`` gaussian mechanisms whose noise is ``multiplier`` times what it hides: exactly
    that of one with multiplier / sqrt(count) (Balle and Wang 2018; Dong, Roth and Su 2022), whatever is chosen in view
    of what came before. Below a multiplier of 0.001, where that cannot be computed: by zero-concentrated privacy."""
    together = multiplier / math.sqrt(count)
    if together < 1e-3:
        rho = 1 / (2 * together**2)
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return float(_accounting().get_epsilon_gaussian(together, delta))


@lru_cache(maxsize=4096)
def sampled_gaussian(multiplier: float, fraction: float, count: int, delta: float) -> float:
    """Epsilon at ``delta`` of ``count`` gaussian mechanisms, each on a Poisson sample.

    The smallest of three bounds: without amplification by sampling; by Renyi divergence (Mironov, Talwar and Zhang
    2019); and, unless these are so large that it takes long and no one would rely on the bound, by privacy loss
    distributions (Koskela, Jalko and Honkela 2020), which are tight up to their grid and usually 8 to 15 % below.
    """
    plain = gaussian(multiplier, count, delta)
    if fraction == 1:
        return plain
    dp = _accounting()
    event = dp.PoissonSampledDpEvent(fraction, dp.GaussianDpEvent(multiplier))
    renyi = dp.rdp.RdpAccountant(_ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    best = min(plain, float(renyi.compose(event, count).get_epsilon(delta)))
    if best > _LARGE:
        return best
    return min(best, float(_losses(multiplier, fraction).self_compose(count).get_epsilon_for_delta(delta)))


@lru_cache(maxsize=16)
def _losses(multiplier: float, fraction: float) -> Any:
    """The privacy loss distribution of one round, which every round of a run composes anew."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier,
        sampling_prob=fraction,
        value_discretization_interval=_GRID,
        neighboring_relation=_accounting().NeighboringRelation.ADD_OR_REMOVE_ONE,
    )


@lru_cache(maxsize=256)
def multiplier_for(epsilon: float, fraction: float, count: int, delta: float) -> float:
    """The smallest multiplier, to four digits, that spends at most ``epsilon``. Raises UserError without dp-accounting,
    or if there is none below a million."""

    def spends(multiplier: float) -> float:
        return sampled_gaussian(multiplier, fraction, count, delta)

    low, high = 1e-3, 1.0
    while spends(high) > epsilon:
        low, high = high, 10 * high
        if high > 1e6:
            raise UserError(f"server.noise.target_epsilon: no noise spends as little as {epsilon:g}: allow more")
    while high / low > 1 + 10.0**-_DIGITS / 4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spends(middle) <= epsilon else (middle, high)
    unit = 10.0 ** (math.floor(math.log10(high)) + 1 - _DIGITS)
    return float(f"{math.ceil(high / unit) * unit:.{_DIGITS}g}")


def _accounting() -> ModuleType:
    try:
        import dp_accounting
    except ImportError as error:
        raise UserError(INSTALL) from error
    return dp_accounting
