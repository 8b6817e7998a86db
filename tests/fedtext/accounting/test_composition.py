"""Composition of guarantees over steps and rounds: exact figures, worked out by hand or from closed forms."""

import math

import numpy as np
import pytest

from fedtext.accounting import composition
from fedtext.errors import UserError


def by_hand(epsilon: float, count: int, delta: float) -> float:
    """Theorem 3.3 of Kairouz, Oh and Viswanath, term by term, for few steps."""

    def needed(i: int) -> float:
        terms = (
            math.comb(count, j) * (math.exp((count - j) * epsilon) - math.exp((count - 2 * i + j) * epsilon))
            for j in range(i)
        )
        return math.fsum(terms) / (1 + math.exp(epsilon)) ** count

    return min((count - 2 * i) * epsilon for i in range(count // 2 + 1) if needed(i) <= delta)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 41])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01, 0.3])
def test_optimal_composition_is_that_of_the_theorem(epsilon: float, count: int, delta: float) -> None:
    """The theorem names a grid of 2 epsilon; between two of its points delta is known as well."""
    with np.errstate(divide="raise"):  # every number of true ones is there once, and no other
        best = composition.optimal.__wrapped__(epsilon, count, delta)
    grid = by_hand(epsilon, count, delta)
    assert grid - 2 * epsilon - 1e-9 < best <= grid + 1e-9
    found = delta_of(best, epsilon, count)
    assert found <= delta + 1e-14  # rounding
    assert best == 0 or found == pytest.approx(delta, abs=1e-14), "and no smaller one would do"


def delta_of(together: float, epsilon: float, count: int) -> float:
    """E max(0, 1 - exp(together - loss)) of that many randomised responses, over all numbers of true ones."""
    truth = 1 / (1 + math.exp(-epsilon))
    chances = [math.comb(count, x) * truth**x * (1 - truth) ** (count - x) for x in range(count + 1)]
    losses = [(2 * x - count) * epsilon for x in range(count + 1)]
    above = [(loss, chance) for loss, chance in zip(losses, chances, strict=True) if loss > together]
    return math.fsum(-math.expm1(together - loss) * chance for loss, chance in above)


def test_optimal_composition_of_steps_whose_chances_differ_by_more_than_a_float_holds() -> None:
    """Of 300 responses at epsilon = 10 none is false with probability 0.986, and 100 are with less than 1e-300."""
    best = composition.optimal(10.0, 300, 1e-5)
    assert 2900 < best < 3000
    assert delta_of(best, 10.0, 300) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-31])
def test_a_delta_below_that_of_the_numbers_left_out_is_composed_by_the_sum(delta: float) -> None:
    """Of 1,000 responses the numbers of true ones that are summed end at 790: a loss of 0.58 is exceeded by others."""
    assert composition.optimal(0.001, 1000, delta) == pytest.approx(1.0)


def test_two_randomised_responses_by_hand() -> None:
    """Both true with probability p^2, where the loss is 2 epsilon: delta = p^2 (1 - e^(e' - 2 epsilon))."""
    truth = 1 / (1 + math.exp(-1))
    assert composition.optimal(1.0, 2, 0.01) == pytest.approx(2 + math.log(1 - 0.01 / truth**2))
    assert composition.optimal(1.0, 1, 1e-5) == pytest.approx(1 + math.log(1 - 1e-5 / truth))


def tail(epsilon: float, sigma: float) -> float:
    """Delta of one gaussian mechanism (Balle and Wang 2018, theorem 8), by its own formula."""
    normal = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))  # noqa: E731
    low, high = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
    return normal(low) - math.exp(epsilon) * normal(high)


@pytest.mark.parametrize(("multiplier", "rounds"), [(5.0, 1), (5.0, 25), (1.0, 1), (2.0, 50)])
def test_gaussian_noise_composes_exactly(multiplier: float, rounds: int) -> None:
    pytest.importorskip("dp_accounting")
    epsilon = composition.gaussian(multiplier, rounds, 1e-5)
    assert tail(epsilon, multiplier / math.sqrt(rounds)) == pytest.approx(1e-5, rel=1e-6)


def test_little_noise_is_composed_exactly_down_to_a_multiplier_of_a_thousandth() -> None:
    """With mu = 1 / multiplier delta is close to P(N > epsilon / mu - mu / 2), N standard normal: the other term of it
    is smaller by a factor of mu. 4.2649 is exceeded with a probability of 1e-5."""
    pytest.importorskip("dp_accounting")
    mu = 1 / 0.0015
    assert (composition.gaussian(0.0015, 1, 1e-5) - mu**2 / 2) / mu == pytest.approx(4.2649, rel=1e-3)


def test_next_to_no_noise_is_bounded_by_concentrated_privacy() -> None:
    """rho = C^2 / 2 sigma^2: at sigma = 0.001 and C = 1 it is 500,000 a round, at sigma = 0.01 it is 5,000."""
    rho = 1 / (2 * 0.0009**2)
    assert composition.gaussian(0.0009, 1, 1e-5) == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)))
    pytest.importorskip("dp_accounting")
    for sigma, rho in ((0.001, 500_000), (0.01, 5_000), (0.05, 200)):
        exact, bound = composition.gaussian(sigma, 1, 1e-5), rho + 2 * math.sqrt(rho * math.log(1e5))
        assert rho < exact <= bound


def test_sampled_noise_is_composed_by_privacy_loss_distributions() -> None:
    """7.29958 and 3.89689: dp_accounting's PLD on a grid of 1e-4; by Renyi divergence 8.25 and 4.55."""
    pytest.importorskip("dp_accounting")
    assert composition.sampled_gaussian(1.0, 0.2, 25, 1e-5) == pytest.approx(7.29958, abs=1e-4)
    assert composition.sampled_gaussian(1.0, 0.1, 25, 1e-5) == pytest.approx(3.89689, abs=1e-4)
    z = composition.multiplier_for(7.29958, 0.2, 25, 1e-5)
    assert z == pytest.approx(1.0, abs=2e-3), "a target is spent in full"


@np.errstate(divide="ignore")  # the library's own, of an epsilon near 0
def test_a_multiplier_is_solved_for_up_to_a_million() -> None:
    pytest.importorskip("dp_accounting")
    large = composition.gaussian(9e5, 1, 1e-8)
    assert composition.multiplier_for(large, 1.0, 1, 1e-8) == pytest.approx(9e5, rel=1e-3)
    with pytest.raises(UserError, match="no noise gives an epsilon as small as"):
        composition.multiplier_for(composition.gaussian(5e6, 1, 1e-8), 1.0, 1, 1e-8)
    assert composition.multiplier_for(composition.gaussian(0.02, 1, 1e-5), 1.0, 1, 1e-5) == pytest.approx(
        0.02, rel=1e-3
    )


def test_figures_above_a_hundred_are_left_to_renyi_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would rely on them, and privacy loss distributions take long over them."""
    dp = pytest.importorskip("dp_accounting")
    asked = []

    class Losses:
        def self_compose(self, count: int) -> "Losses":
            return self

        def get_epsilon_for_delta(self, delta: float) -> float:
            asked.append(delta)
            return 42.0

    monkeypatch.setattr(composition, "_losses", lambda multiplier, fraction: Losses())
    found = {}
    for count in (20, 65):
        event = dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(0.5))
        accountant = dp.rdp.RdpAccountant([2], dp.NeighboringRelation.ADD_OR_REMOVE_ONE)  # above 100 the best order
        renyi = accountant.compose(event, count).get_epsilon(1e-5)
        asked.clear()
        found[count] = composition.sampled_gaussian.__wrapped__(0.5, 0.5, count, 1e-5)
        assert 50 < renyi < 200
        assert found[count] == (renyi if renyi > 100 else 42.0)
        assert asked == ([] if renyi > 100 else [1e-5])
    asked.clear()
    assert composition.sampled_gaussian.__wrapped__(1.0, 1.0, 5, 1e-5) == composition.gaussian(1.0, 5, 1e-5)
    assert not asked, "where everybody takes part nothing is amplified"
    assert min(found.values()) == 42.0
    assert max(found.values()) > 100


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 3.0, 4e5])
def test_a_multiplier_is_the_smallest_of_four_digits(epsilon: float) -> None:
    """Bounds come as near to it as a quarter of the last digit that a number from 1 to 10 has."""
    pytest.importorskip("dp_accounting")
    found = composition.multiplier_for(epsilon, 1.0, 1, 1e-5)
    assert composition.gaussian(found, 1, 1e-5) <= epsilon
    last_digit = 10.0 ** (math.floor(math.log10(found)) - 3)
    assert composition.gaussian(found - last_digit - found * 1e-4 / 4, 1, 1e-5) > epsilon


def test_runs_on_samples_are_composed_by_privacy_loss_distributions_where_they_are_tighter() -> None:
    """One run in two parts is one run; and it is at least 5 % below Renyi divergence alone."""
    dp = pytest.importorskip("dp_accounting")
    both = composition.several(((1.1, 0.05, 60), (1.1, 0.05, 40)), 1e-5)
    assert both == pytest.approx(composition.sampled_gaussian(1.1, 0.05, 100, 1e-5), rel=2e-3)
    different = composition.several(((1.1, 0.05, 60), (0.9, 0.02, 100), (8.0, 1.0, 10)), 1e-5)
    renyi = dp.rdp.RdpAccountant(composition._ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for multiplier, fraction, count in ((1.1, 0.05, 60), (0.9, 0.02, 100)):
        renyi.compose(dp.PoissonSampledDpEvent(fraction, dp.GaussianDpEvent(multiplier)), count)
    renyi.compose(dp.GaussianDpEvent(8.0), 10)
    assert both < different < 0.95 * renyi.get_epsilon(1e-5)


@pytest.mark.parametrize(
    ("multiplier", "fraction", "count", "expected"), [(0.3162, 0.01, 1000, 59.17029), (0.25, 0.05, 20, 50.41001)]
)
def test_little_noise_on_small_samples_is_not_left_to_the_other_bounds(
    multiplier: float, fraction: float, count: int, expected: float
) -> None:
    """59.07 to 59.27 by prv_accountant; Renyi divergences of orders from 2 on give 1,175 and 210."""
    pytest.importorskip("dp_accounting")
    assert composition.sampled_gaussian(multiplier, fraction, count, 1e-5) == pytest.approx(expected, abs=1e-4)
    assert composition.several(((multiplier, fraction, count),), 1e-5) == pytest.approx(expected, abs=1e-4)
    assert composition._without_losses(multiplier, fraction, count, 1e-5) > 100
    assert composition.beyond_others(multiplier, fraction, count, 1e-5)
    assert not composition.beyond_others(1.0, 0.2, 25, 1e-5), "the others are no larger than 100"
    assert not composition.beyond_others(0.05, 0.1, 50, 1e-5), "and so is it"


@pytest.mark.parametrize("order", [1.05, 1.5, 2.0])
def test_divergences_near_one_are_integrals(order: float) -> None:
    """Of order 2 it is log(1 + q^2 (e^(1 / z^2) - 1)) (Mironov, Talwar and Zhang 2019)."""
    for z, q in ((0.3, 0.01), (1.0, 0.1), (5.0, 0.5)):
        found = composition._divergence(z, q, order)
        at_two = math.log1p(q**2 * math.expm1(z**-2))
        assert 0 < found <= at_two * (1 + 1e-6), "they grow with their order"
        assert order < 2 or found == pytest.approx(at_two, rel=1e-6)
    assert composition._divergence(2.0, 1.0, order) == order / 8


@pytest.mark.parametrize(("epsilon", "count"), [(5.0, 2), (16.0, 1), (8.0, 200), (16.0, 1000)])
def test_optimal_composition_is_rounded_up(epsilon: float, count: int) -> None:
    """At delta = 1e-12 the next smaller float would be too small. All answers are true in what is above."""
    best = composition.optimal.__wrapped__(epsilon, count, 1e-12)
    assert epsilon * (count - 2) < best <= epsilon * count
    above, all_true = epsilon * count - best, math.exp(-count * math.log1p(math.exp(-epsilon)))
    assert -math.expm1(-above) * all_true <= 1e-12
