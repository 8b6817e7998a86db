"""Lower bounds by guesses: against their definition, simulated mechanisms, and jax-privacy where it is installed."""

import math
from fractions import Fraction

import numpy as np
import pytest

from fedtext.accounting import composition, one_run
from tests.loops import nonempty

GUESSED = [(1000, 125, 120, 1e-5), (1000, 125, 100, 1e-5), (100, 60, 45, 1e-3), (200, 20, 20, 1e-2), (50, 7, 4, 1e-5)]


def _directly(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2 of Steinke et al. 2023, with exact binomial sums."""
    q = Fraction(math.exp(epsilon) / (1 + math.exp(epsilon)))
    chance = [math.comb(guesses, k) * q**k * (1 - q) ** (guesses - k) for k in range(guesses + 1)]
    beta = sum(chance[right:])
    slack = max((sum(chance[right - i : right]) / i for i in range(1, right + 1)), default=Fraction(0))
    return min(1.0, float(beta + 2 * canaries * Fraction(delta) * slack))


@pytest.mark.parametrize(("canaries", "guesses", "right", "delta"), GUESSED)
def test_p_values_are_those_of_the_theorem(canaries: int, guesses: int, right: int, delta: float) -> None:
    for epsilon in (0.0, 0.3, 2.0):
        found = one_run.p_value(canaries, guesses, right, epsilon, delta)
        assert found == pytest.approx(_directly(canaries, guesses, right, epsilon, delta), rel=1e-9)


@pytest.mark.parametrize(("canaries", "guesses", "right", "delta"), GUESSED)
def test_a_bound_is_where_the_probability_is_that_of_an_error(
    canaries: int, guesses: int, right: int, delta: float
) -> None:
    found = one_run.lower_bound(canaries, guesses, right, 0.95, delta)
    if found:
        assert one_run.p_value(canaries, guesses, right, found, delta) == pytest.approx(0.05, abs=1e-7)
    else:
        assert one_run.p_value(canaries, guesses, right, 0.0, delta) >= 0.05
    more = one_run.lower_bound(canaries, guesses, min(guesses, right + 3), 0.95, delta)
    assert more >= found, "more right guesses, a larger bound"
    assert one_run.lower_bound(canaries, guesses, right, 0.99, delta) <= found, "more confidence, a smaller bound"


def test_nothing_is_bounded_by_guesses_that_chance_explains() -> None:
    assert one_run.lower_bound(1000, 100, 50, 0.95, 1e-5) == 0
    assert one_run.gaussian_lower_bound(1000, 100, 50, 0.95, 1e-5) == 0
    assert one_run.lower_bound(100, 20, 0, 0.95, 1e-5) == 0
    assert one_run.gaussian_lower_bound(100, 20, 0, 0.95, 1e-5) == 0


def test_a_bound_exceeds_the_epsilon_of_randomised_response_in_few_runs() -> None:
    """Each canary's bit is released by randomised response: no mechanism makes more guesses right."""
    rng, epsilon, runs = np.random.default_rng(3), 1.0, 4000
    right_R = rng.binomial(200, math.exp(epsilon) / (1 + math.exp(epsilon)), runs)
    bounds = {right: one_run.lower_bound(200, 200, int(right), 0.95, 0.0) for right in set(right_R.tolist())}
    exceeded = np.mean([bounds[right] > epsilon for right in right_R.tolist()])
    assert 0.02 < exceeded <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_the_gaussian_bound_exceeds_the_epsilon_of_gaussian_noise_in_few_runs(mu: float) -> None:
    rng, canaries, guesses, delta = np.random.default_rng(4), 400, 50, 1e-5
    epsilon, exceeded, runs = composition.gaussian(1 / mu, 1, delta), 0, 400
    for _ in range(runs):
        inside_K = rng.random(canaries) < 0.5
        scores_K = rng.standard_normal(canaries) + mu * inside_K - mu / 2
        surest = np.argsort(-np.abs(scores_K))[:guesses]
        right = int(((scores_K > 0) == inside_K)[surest].sum())
        bound = one_run.gaussian_lower_bound(canaries, guesses, right, 0.95, delta)
        exceeded += bound > epsilon
    assert exceeded <= runs * (0.05 + 3 * math.sqrt(0.05 * 0.95 / runs))


def test_an_estimate_is_that_of_the_shift_of_scores() -> None:
    rng = np.random.default_rng(5)
    inside, outside = rng.standard_normal(200_000) * 3 + 2.4, rng.standard_normal(200_000) * 3
    expected = composition.gaussian(1 / 0.8, 1, 1e-5)
    assert one_run.estimate(inside, outside, 1e-5) == pytest.approx(expected, abs=0.06)
    assert one_run.estimate(outside, inside, 1e-5) == 0
    assert one_run.estimate(np.ones(3), np.zeros(4), 1e-5) == 64, "without noise"
    assert one_run.estimate(np.zeros(3), np.zeros(4), 1e-5) == 0


@pytest.mark.parametrize(("canaries", "guesses", "right", "delta"), GUESSED)
def test_bounds_agree_with_jax_privacy(canaries: int, guesses: int, right: int, delta: float) -> None:
    auditing = pytest.importorskip("jax_privacy.auditing")
    inside, outside = np.arange(canaries // 2) * -1.0, np.arange(canaries - canaries // 2) * -1.0
    inside[:right] = 9.0
    outside[: guesses - right] = 9.0
    auditor, at = auditing.CanaryScoreAuditor(inside, outside), auditing.Explicit(5.0)
    known = auditor.epsilon_one_run(0.05, delta, threshold_strategy=at)
    assert one_run.lower_bound(canaries, guesses, right, 0.95, delta) == pytest.approx(known, abs=1e-6)
    known = auditor.epsilon_one_run_fdp(0.05, delta, threshold_strategy=at)
    assert one_run.gaussian_lower_bound(canaries, guesses, right, 0.95, delta) == pytest.approx(known, abs=1e-6)


def test_a_bound_stops_at_its_largest_value() -> None:
    rights = nonempty([3000])
    assert all(one_run.lower_bound(10**6, right, right, 0.95, 0.0) < 12 for right in rights)
    assert one_run.gaussian_lower_bound(3000, 3000, 3000, 0.95, 1e-300) <= composition.gaussian(1 / 64, 1, 1e-300)
