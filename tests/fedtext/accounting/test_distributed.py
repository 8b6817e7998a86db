"""Bounds of sums of integer noise, against divergences that are summed over all integers."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ive, logsumexp

from fedtext.accounting import composition
from fedtext.accounting.distributed import (
    ORDERS,
    REPEATED,
    Kind,
    Shares,
    divergence,
    epsilon,
    multiplier_for,
    rounded_norm,
)
from tests.loops import nonempty

pytest.importorskip("dp_accounting")
REACH = 700


def summed(kind: Kind, variance: float, count: int) -> Any:
    """Logarithms of the probabilities of a sum of shares, from -REACH to REACH."""
    values = np.arange(-REACH, REACH + 1)
    if kind == "skellam":
        chances = ive(np.abs(values), variance * count)
    else:
        share = np.exp(-(values**2) / (2 * variance))
        share /= share.sum()
        chances = share
        for _ in range(count - 1):
            chances = np.convolve(chances, share, "same")
    with np.errstate(divide="ignore"):
        return np.log(chances)


def exact(kind: Kind, variance: float, count: int, shift: int, order: int) -> float:
    """The Renyi divergence of a sum and one that is shifted, by definition."""
    logs = summed(kind, variance, count)
    here, there = logs[shift:], logs[:-shift]
    known = np.isfinite(here) & np.isfinite(there)
    return float(logsumexp(order * here[known] + (1 - order) * there[known]) / (order - 1))


CASES = [
    (kind, variance, count)
    for kind, variances in (("discrete_gaussian", (0.25, 0.3, 0.5, 1.0, 6.0)), ("skellam", (0.25, 0.5, 1.0, 6.0)))
    for variance in variances
    for count in (1, 2, 3, 8)
]


@pytest.mark.parametrize(("kind", "variance", "count"), CASES)
def test_no_divergence_is_larger_than_its_bound(kind: Kind, variance: float, count: int) -> None:
    for shift in nonempty((1, 2, 3)):
        for order in nonempty((2, 3, 5, 8, 16)):
            found = exact(kind, variance, count, shift, order)
            assert found <= divergence(Shares(kind, variance, count, shift, 1), order) * (1 + 1e-9)
            # as many coordinates, each of which is shifted by one
            alone = exact(kind, variance, count, 1, order)
            many = Shares(kind, variance, count, math.sqrt(shift), shift)
            assert shift * alone <= divergence(many, order) * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["discrete_gaussian", "skellam"])
def test_bounds_of_much_noise_are_tight(kind: Kind) -> None:
    for order in nonempty((2, 5, 16)):
        found = exact(kind, 40.0, 8, 3, order)
        assert found == pytest.approx(divergence(Shares(kind, 40.0, 8, 3, 1), order), rel=0.02)


def test_sums_of_discrete_gaussians_are_none_and_the_bound_says_by_how_much() -> None:
    """The logarithm of the largest ratio of probabilities of a sum of 3 and of a discrete Gaussian is at most tau."""
    variance, count = 0.3, 3
    values = np.arange(-REACH, REACH + 1)
    one = -(values**2) / (2 * count * variance)
    one = one - logsumexp(one)
    logs = summed("discrete_gaussian", variance, count)
    near = np.abs(values) < 25
    difference = np.abs(logs[near] - one[near]).max()
    tau = 10 * (math.exp(-(math.pi**2) * variance) + math.exp(-(4 / 3) * math.pi**2 * variance))
    assert 1e-3 < difference <= tau
    made = Shares("discrete_gaussian", variance, count, 1.0, 1)
    deviation = math.sqrt(count * variance)
    assert divergence(made, 16) == pytest.approx(
        min(
            8 / deviation**2 + tau,
            8 * (1 / deviation**2 + 2 * tau / deviation + tau**2),
            8 * (1 / deviation + tau) ** 2,
        )
    )


def test_formulas_by_hand() -> None:
    """Two coordinates, sensitivity 3, and total variance 10: the L1 norm is at most sqrt(2) 3."""
    skellam = Shares("skellam", 2.5, 4, 3.0, 2)
    l1 = 3 * math.sqrt(2)
    assert divergence(skellam, 4) == pytest.approx(4 * 9 / 20 + min((7 * 9 + 6 * l1) / 400, 3 * l1 / 20))
    one = Shares("skellam", 2.5, 4, 1.0, 50)  # the square of the norm, where it is below 1: here 1
    assert divergence(one, 4) == pytest.approx(4 / 20 + min((7 + 6) / 400, 3 / 20))
    assert divergence(Shares("discrete_gaussian", 0.2499, 4, 1.0, 1), 2) == math.inf
    assert divergence(Shares("discrete_gaussian", 0.25, 1, 1.0, 1), 2) == pytest.approx(4.0), "one share has no tau"


@pytest.mark.parametrize(("norm", "coordinates"), [(3.0, 400), (0.2, 50), (50.0, 30)])
def test_rounding_exceeds_its_bound_seldom(norm: float, coordinates: int) -> None:
    rng = np.random.default_rng(1)
    update = rng.standard_normal(coordinates)
    update *= norm / np.linalg.norm(update)
    lower = np.floor(update)
    lengths = [np.linalg.norm(lower + (rng.random(coordinates) < update - lower)) for _ in range(2000)]
    bound = rounded_norm(norm, coordinates)
    assert np.mean(np.array(lengths) > bound) <= REPEATED
    assert max(lengths) <= norm + math.sqrt(coordinates)
    assert bound <= norm + math.sqrt(coordinates)
    by_hand = norm**2 + coordinates / 4 + (norm + math.sqrt(coordinates) / 2)
    assert bound == pytest.approx(min(norm + math.sqrt(coordinates), math.sqrt(by_hand)))


@pytest.mark.parametrize("kind", ["discrete_gaussian", "skellam"])
def test_fine_steps_cost_little_more_than_gaussian_noise(kind: Kind) -> None:
    unit = Shares.unit(kind, 50, 2.0**20, 10_000)
    for multiplier, rounds in nonempty(((1.0, 1), (3.0, 25), (20.0, 100))):
        found, gaussian = epsilon(unit.times(multiplier), rounds, 1e-5), composition.gaussian(multiplier, rounds, 1e-5)
        assert gaussian <= found <= 1.15 * gaussian


@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("rounds", [1, 30, 1000])
def test_what_renyi_divergence_costs_depends_on_epsilon(rounds: int, delta: float) -> None:
    """As docs/explanation/privacy.md has it: 15 % from 0.1 to 50, and less than twice as much beyond."""
    unit = Shares.unit("skellam", 50, 2.0**20, 10_000)
    multipliers = [float(z) for z in np.geomspace(0.1, 100, 25)]
    pairs = [(composition.gaussian(z, rounds, delta), epsilon(unit.times(z), rounds, delta)) for z in multipliers]
    assert max(found / gaussian for gaussian, found in nonempty([p for p in pairs if 0.1 <= p[0] <= 50])) <= 1.15
    assert max(found / gaussian for gaussian, found in nonempty([p for p in pairs if p[0] > 50])) <= 2


@pytest.mark.parametrize("kind", ["discrete_gaussian", "skellam"])
def test_coarse_steps_cost_more(kind: Kind) -> None:
    epsilons = [
        epsilon(Shares(kind, (8 * step) ** 2 / 50, 50, rounded_norm(step, 10_000), 10_000), 10, 1e-5)
        for step in (2.0**14, 2.0**9, 2.0**7)
    ]
    assert epsilons == sorted(epsilons)
    assert epsilons[2] > 1.02 * epsilons[0]


@pytest.mark.parametrize("kind", ["discrete_gaussian", "skellam"])
@pytest.mark.parametrize("target", [0.5, 8.0])
def test_a_multiplier_meets_its_target(kind: Kind, target: float) -> None:
    unit = Shares.unit(kind, 10, rounded_norm(200.0, 1000), 1000)
    found = multiplier_for(target, unit, 25, 1e-5)
    assert 0.999 * target < epsilon(unit.times(found), 25, 1e-5) <= target


def test_epsilon_is_that_of_the_best_order() -> None:
    """By the conversion of Canonne, Kamath and Steinke (2020), proposition 12, over the same orders."""
    made = Shares.unit("skellam", 10, 300.0, 100).times(2.0)
    by_hand = []
    for order in ORDERS:
        bound = 5 * divergence(made, order)
        by_hand.append(bound + math.log1p(-1 / order) - math.log(1e-5 * order) / (order - 1))
    assert epsilon(made, 5, 1e-5) == pytest.approx(min(by_hand), rel=1e-9)


def test_one_share_of_much_noise_is_that_of_all_others_together() -> None:
    """Without tau only the sum's variance counts."""
    one, many = Shares("skellam", 100.0, 1, 4.0, 10), Shares("skellam", 10.0, 10, 4.0, 10)
    assert divergence(one, 3) == pytest.approx(divergence(many, 3))
