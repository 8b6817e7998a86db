"""Composition of guarantees: pure ones here, those of Gaussian noise with dp-accounting, which is imported on demand.

Legend: X possible numbers of true answers; V values of Gaussian noise, on a grid.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from types import ModuleType
from typing import Any

import numpy as np

from fedtext.errors import UserError

_ORDERS = [2, 2.25, 2.5, 2.75, 3, 3.5, *range(4, 17), 20, 24, 32, 48, 64, 128, 256]  # of Renyi divergence
_NEAR = (1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)  # orders that only tell whether privacy losses are worth the time
_GRID, _LARGE = 1e-3, 100.0  # grid of privacy losses, and the largest epsilon for which it is used
_TAIL = 1e-30  # upper bound on the probability outside of the numbers that are summed
_ROUNDED = 1e-15  # upper bound on what a sum of probabilities loses to rounding, as a share of it
_DIGITS = 4  # significant digits of a computed multiplier, so that other versions of the library give the same
INSTALL = "dp-accounting is not installed: pip install 'fedtext[ledger]'"


def basic(epsilon: float, count: int) -> float:
    """Compose ``count`` epsilon-private steps: the sum of their epsilons, with delta = 0."""
    return epsilon * count


@lru_cache(maxsize=4096)
def optimal(epsilon: float, count: int, delta: float) -> float:
    """Compute the optimal composition of epsilon-private steps (Kairouz, Oh and Viswanath 2015, theorem 3.3).

    It is the smallest epsilon' for which any ``count`` steps, each of which may depend on all before it, are (epsilon',
    delta)-private together: exactly that of ``count`` randomised responses. If x of their answers are true, a binomial
    number, the privacy loss is (2 x - count) epsilon. The sum is over all x within 12 standard deviations; the others
    count as failures. If they alone may be more than ``delta``, it is the sum of the epsilons.

    Args:
        epsilon: Epsilon of a step.
        count: Number of steps.
        delta: Delta of all of them together.
    """
    budget = delta - _TAIL
    if budget <= 0:
        return basic(epsilon, count)
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

    def over(place: int) -> tuple[float, float]:
        """P(loss >= loss[place]) and E exp(loss[place] - loss) there: delta of a smaller epsilon' follows from both."""
        part_X = chance_X[place:]
        return float(part_X.sum()), float((part_X * np.exp(loss_X[place] - loss_X[place:])).sum())

    low, high = 0, len(loss_X) - 1  # delta(loss[high]) = 0 is within the budget; find the first loss that is
    while low < high:
        middle = (low + high) // 2
        mass, other = over(middle)
        low, high = (low, middle) if mass - other <= budget else (middle + 1, high)
    mass, other = over(low)  # between the loss before it and this one delta is mass - exp(epsilon' - loss) other
    least = max(mass * (1 + _ROUNDED) - budget, 5e-324)
    found = math.nextafter(float(loss_X[low]) + math.log(least / other), math.inf)  # the sum is rounded too
    return max(0.0, min(found, float(loss_X[-1])))


def available() -> bool:
    """Return whether the library that composes Gaussian noise is installed."""
    try:
        _accounting()
    except UserError:
        return False
    return True


@lru_cache(maxsize=4096)
def gaussian(multiplier: float, count: int, delta: float) -> float:
    """Compute epsilon at ``delta`` of ``count`` Gaussian mechanisms, which may be chosen adaptively.

    It is exactly that of one mechanism with multiplier / sqrt(count) (Balle and Wang 2018; Dong, Roth and Su 2022). If
    this is below 0.001, where it cannot be computed, the bound of zero-concentrated differential privacy is used.

    Args:
        multiplier: Standard deviation of the noise / sensitivity.
        count: Number of mechanisms.
        delta: Where epsilon is computed.
    """
    together = multiplier / math.sqrt(count)
    if together < 1e-3:
        if together**2 < 1e-300:  # its inverse is no number
            return math.inf
        rho = 1 / (2 * together**2)
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return float(_accounting().get_epsilon_gaussian(together, delta))


@lru_cache(maxsize=4096)
def sampled_gaussian(multiplier: float, fraction: float, count: int, delta: float) -> float:
    """Compute epsilon at ``delta`` of ``count`` Gaussian mechanisms, each on a Poisson sample.

    It is the smallest of three bounds: without amplification by sampling; by Renyi divergence (Mironov, Talwar and
    Zhang 2019); and by privacy loss distributions (Koskela, Jalko and Honkela 2020), which are tight up to their grid
    and usually 8 to 15 % smaller. The third is not computed if the others exceed 100, and Renyi divergences of orders
    between 1 and 2 do not let expect less: it would take long, and such a bound is of no use.

    Args:
        multiplier: Standard deviation of the noise, divided by the sensitivity.
        fraction: Probability that a record is in a sample.
        count: Number of mechanisms.
        delta: Delta of all of them together.
    """
    if fraction == 1:
        return gaussian(multiplier, count, delta)
    best = _without_losses(multiplier, fraction, count, delta)
    if best > _LARGE and not _within_reach(((multiplier, fraction, count),), delta):
        return best
    return min(best, float(_losses(multiplier, fraction).self_compose(count).get_epsilon_for_delta(delta)))


@lru_cache(maxsize=256)
def beyond_others(multiplier: float, fraction: float, count: int, delta: float) -> bool:
    """Return whether ``sampled_gaussian`` uses privacy losses although the other bounds exceed 100.

    Args:
        multiplier, fraction, count, delta: As in ``sampled_gaussian``.
    """
    arguments = multiplier, fraction, count, delta
    return fraction < 1 and _without_losses(*arguments) > _LARGE and _within_reach((arguments[:3],), delta)


def _without_losses(multiplier: float, fraction: float, count: int, delta: float) -> float:
    """Return the smaller of the bounds without amplification and by Renyi divergence."""
    dp = _accounting()
    event = dp.PoissonSampledDpEvent(fraction, dp.GaussianDpEvent(multiplier))
    renyi = dp.rdp.RdpAccountant(_ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return min(gaussian(multiplier, count, delta), float(renyi.compose(event, count).get_epsilon(delta)))


def _within_reach(mechanisms: Sequence[tuple[float, float, int]], delta: float) -> bool:
    """Return whether Gaussian mechanisms can have an epsilon of 100 or less together, as far as orders near 1 tell.

    With little noise and small samples the divergences of orders from 2 on are large, however small epsilon is. These
    are integrated on a grid, and bound nothing: they only say whether privacy losses are worth the time.

    Args:
        mechanisms, delta: As in ``several``.
    """
    for order in _NEAR:
        divergence = sum(count * _divergence(multiplier, fraction, order) for multiplier, fraction, count in mechanisms)
        if divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1) <= _LARGE:
            return True
    return False


def _divergence(multiplier: float, fraction: float, order: float) -> float:
    """Return about the Renyi divergence of a Gaussian mechanism on a Poisson sample from Gaussian noise alone."""
    if fraction == 1:
        return order / (2 * multiplier**2)
    noise_V = np.linspace(-12 * multiplier, order + 12 * multiplier, 4001)
    loss_V = np.logaddexp(math.log1p(-fraction), math.log(fraction) + (2 * noise_V - 1) / (2 * multiplier**2))
    log_V = order * loss_V - (noise_V / multiplier) ** 2 / 2
    step = (noise_V[1] - noise_V[0]) / (multiplier * math.sqrt(2 * math.pi))
    return float(np.logaddexp.reduce(log_V) + math.log(step)) / (order - 1)


@lru_cache(maxsize=64)
def several(mechanisms: tuple[tuple[float, float, int], ...], delta: float) -> float:
    """Compute epsilon at ``delta`` of Gaussian mechanisms with different noise, which may be chosen adaptively.

    Those without sampling are exactly one mechanism, whose inverse squared multiplier is the sum of theirs. With others
    it is the smallest of the three bounds of ``sampled_gaussian``.

    Args:
        mechanisms: For each kind its noise multiplier, the probability that a record is in a sample, and its number;
            at least one.
        delta: Delta of all of them together.
    """
    inverse = sum(count / multiplier**2 for multiplier, fraction, count in mechanisms if fraction == 1)
    sampled = [each for each in mechanisms if each[1] < 1]
    if not sampled:
        return gaussian(inverse**-0.5, 1, delta)
    dp = _accounting()
    renyi = dp.rdp.RdpAccountant(_ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for multiplier, fraction, count in sampled:
        renyi.compose(dp.PoissonSampledDpEvent(fraction, dp.GaussianDpEvent(multiplier)), count)
    if inverse:
        renyi.compose(dp.GaussianDpEvent(inverse**-0.5))
    plain = sum(count / multiplier**2 for multiplier, _, count in mechanisms)
    best = min(float(renyi.get_epsilon(delta)), gaussian(plain**-0.5, 1, delta))
    if best > _LARGE and not _within_reach(mechanisms, delta):
        return best
    each = [_losses(multiplier, fraction).self_compose(count) for multiplier, fraction, count in sampled]
    if inverse:
        each.append(_losses(inverse**-0.5, 1.0))
    together = reduce(lambda one, other: one.compose(other), each)
    return min(best, float(together.get_epsilon_for_delta(delta)))


@lru_cache(maxsize=16)
def _losses(multiplier: float, fraction: float) -> Any:
    """Return the privacy loss distribution of one round. It is cached, since it is composed after every round."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier,
        sampling_prob=fraction,
        value_discretization_interval=_GRID,
        neighboring_relation=_accounting().NeighboringRelation.ADD_OR_REMOVE_ONE,
    )


@lru_cache(maxsize=256)
def multiplier_for(
    epsilon: float, fraction: float, count: int, delta: float, key: str = "server.noise.target_epsilon"
) -> float:
    """Compute the smallest multiplier, to four digits, with which ``sampled_gaussian`` is at most ``epsilon``.

    Args:
        epsilon: The epsilon to reach.
        fraction: Probability that a record is in a sample.
        count: Number of mechanisms.
        delta: Delta of all of them together.
        key: The key that asks for it, for messages.

    Raises:
        UserError: dp-accounting is not installed, or no multiplier below a million is large enough.
    """

    return smallest(lambda multiplier: sampled_gaussian(multiplier, fraction, count, delta), epsilon, key)


def smallest(spends: Callable[[float], float], epsilon: float, key: str = "server.noise.target_epsilon") -> float:
    """Compute the smallest noise multiplier, to four digits, with which a run spends at most ``epsilon``.

    Args:
        spends: The epsilon that a run spends with a multiplier, which falls with it.
        epsilon: The epsilon to reach.
        key: The key that asks for it, for messages.

    Raises:
        UserError: No multiplier below a million is large enough.
    """
    low, high = 1e-3, 1.0
    while spends(high) > epsilon:
        low, high = high, 10 * high
        if high > 1e6:
            raise UserError(f"{key}: no noise gives an epsilon as small as {epsilon:g}: raise it")
    while high / low > 1 + 10.0**-_DIGITS / 4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spends(middle) <= epsilon else (middle, high)
    unit = 10.0 ** (math.floor(math.log10(high)) + 1 - _DIGITS)
    return float(f"{math.ceil(high / unit) * unit:.{_DIGITS}g}")


def of_renyi(orders: Sequence[float], divergences: Sequence[float], delta: float) -> float:
    """Compute epsilon at ``delta`` from bounds of the Renyi divergences of a run (Canonne, Kamath and Steinke 2020,
    proposition 12).

    Args:
        orders: Orders of the divergences, above 1.
        divergences: Their bounds.
        delta: Where epsilon is computed.

    Raises:
        UserError: dp-accounting is not installed.
    """
    return float(_accounting().rdp.compute_epsilon(list(orders), list(divergences), delta)[0])


def _accounting() -> ModuleType:
    try:
        import dp_accounting
    except ImportError as error:
        raise UserError(INSTALL) from error
    return dp_accounting
