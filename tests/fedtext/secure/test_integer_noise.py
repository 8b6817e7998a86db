"""Samples of noise in integers, against the probabilities of their distributions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import ive
from scipy.stats import chi2, poisson

from fedtext.secure import integer_noise
from tests.loops import nonempty

COUNT = 60_000


def gaussian_chances(values: Any, variance: float) -> Any:
    every = np.arange(-4000, 4001)
    return np.exp(-(values**2) / (2 * variance)) / np.exp(-(every**2) / (2 * variance)).sum()


def skellam_chances(values: Any, variance: float) -> Any:
    return ive(np.abs(values), variance)


def poisson_chances(values: Any, mean: float) -> Any:
    return poisson.pmf(values, mean)


CASES = [
    *[(integer_noise.discrete_gaussian, gaussian_chances, variance) for variance in (0.05, 0.25, 0.9, 4.0, 33.3, 1e4)],
    *[(integer_noise.skellam, skellam_chances, variance) for variance in (0.05, 0.9, 4.0, 33.3, 1e3)],
    *[(integer_noise.poisson, poisson_chances, mean) for mean in (0.01, 0.5, 1.0, 3.7, 60.0, 5e3)],
]


def named(case: Any) -> str:
    return f"{case[0].__name__}-{case[2]:g}"


def chi_squared(samples: Any, chances: Callable[[Any], Any]) -> float:
    """The chance of counts at least as far from what is expected, over values that are expected at least 10 times."""
    values = np.arange(samples.min() - 50, samples.max() + 51)
    expected = len(samples) * chances(values)
    seen = np.bincount(samples - values[0], minlength=len(values))
    likely = expected >= 10
    observed = [*seen[likely], seen[~likely].sum()]
    wanted = [*expected[likely], len(samples) - expected[likely].sum()]
    found = sum((o - w) ** 2 / w for o, w in zip(observed, wanted, strict=True) if w > 1e-6)
    return float(chi2.sf(found, max(1, likely.sum())))


@pytest.mark.parametrize("case", CASES, ids=map(named, CASES))
def test_samples_have_the_chances_of_their_distribution(case: Any) -> None:
    draw, chances, parameter = case
    samples = draw(np.random.default_rng(3), parameter, COUNT)
    assert samples.shape == (COUNT,)
    assert chi_squared(samples, lambda values: chances(values, parameter)) > 1e-4


@pytest.mark.parametrize("case", [CASES[3], CASES[8], CASES[14]], ids=map(named, [CASES[3], CASES[8], CASES[14]]))
def test_the_chances_are_the_same_if_every_comparison_takes_all_digits(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integer_noise, "_DOUBT", 2.0)
    draw, chances, parameter = case
    samples = draw(np.random.default_rng(4), parameter, 1500)
    assert chi_squared(samples, lambda values: chances(values, parameter)) > 1e-4


@pytest.mark.parametrize("variance", [1e7, 3.3e12, 2.0**52])
@pytest.mark.parametrize("draw", [integer_noise.discrete_gaussian, integer_noise.skellam])
def test_large_noise_is_normal_to_its_fourth_moment(draw: Any, variance: float) -> None:
    samples = draw(np.random.default_rng(5), variance, COUNT) / np.sqrt(variance)
    error = 5 / np.sqrt(COUNT)
    assert abs(samples.mean()) < error
    assert abs(samples.var() - 1) < 1.5 * error
    assert abs((samples**3).mean()) < 4 * error
    assert abs((samples**4).mean() - 3) < 10 * error
    below = np.array([np.mean(samples < quantile) for quantile in (-1.0, 0.0, 1.0)])
    assert np.abs(below - [0.158655, 0.5, 0.841345]).max() < error


@pytest.mark.parametrize("mean", [0.3, 5.0, 15.5, 16.5, 900.0, 1e9, 7e13, 2.0**51])
def test_logarithms_of_poisson_chances_are_exact_enough_for_a_doubt(mean: float) -> None:
    """Those in double precision, against those with 80 digits: the difference is far below what is not trusted."""
    import mpmath

    deviation = max(1, int(np.sqrt(mean)))
    values = np.unique(np.maximum(0, int(mean) + deviation * np.arange(-12, 13)))
    found = integer_noise._log_poisson(values, mean)
    with mpmath.workdps(80):
        exact = [int(k) * mpmath.log(mean) - mpmath.mpf(mean) - mpmath.loggamma(int(k) + 1) for k in values]
        errors = [abs(float(f - e)) for f, e in zip(found, exact, strict=True)]
    assert max(errors) < integer_noise._DOUBT / 100


@pytest.mark.parametrize("mean", [0.01, 0.9, 1.0, 2.5, 40.0, 1234.5])
def test_no_candidate_is_more_likely_than_the_envelope_allows(mean: float) -> None:
    middle, scale, most = integer_noise._envelope(mean)
    found = [float(integer_noise._ratio(away, mean, middle, scale)) for away in range(-middle, 40 * scale)]
    assert max(found) <= most <= max(found) + 2e-6


def test_a_comparison_that_is_settled_agrees_with_one_that_is_clear() -> None:
    rng = np.random.default_rng(6)
    for exponent in nonempty((0.0, 1e-9, 0.3, 1.0, 7.5, 40.0)):
        for uniform in nonempty(rng.random(40)):
            if abs(uniform - np.exp(-exponent)) > 1e-9:
                settled = integer_noise._settled(rng, float(uniform), lambda: exponent)  # noqa: B023
                assert settled == (uniform < np.exp(-exponent))


def test_further_digits_decide_where_the_first_ones_are_equal() -> None:
    """exp(-log 2) is one half, and a number whose first digits are one half is below it never, and one whose digits
    begin just below it always."""
    import mpmath

    rng, half = np.random.default_rng(7), lambda: mpmath.log(2)
    for _ in nonempty(range(20)):
        assert not integer_noise._settled(rng, 0.5, half)
        assert integer_noise._settled(rng, 0.5 - 2.0**-53, half)
    near = lambda: mpmath.log(2) - mpmath.mpf(2) ** -55  # noqa: E731  # exp of it is 1/2 + 2^-56
    below = np.mean([integer_noise._settled(rng, 0.5, near) for _ in range(4000)])
    assert abs(below - 0.125) < 5 * np.sqrt(0.125 * 0.875 / 4000)


def test_draws_follow_the_generator() -> None:
    for draw in nonempty((integer_noise.discrete_gaussian, integer_noise.skellam)):
        first, again, other = (draw(np.random.default_rng(seed), 50.0, 40_000) for seed in (1, 1, 2))
        assert first.tobytes() == again.tobytes()
        assert np.mean(first == other) < 0.1
        assert draw(np.random.default_rng(1), 50.0, 0).shape == (0,)


@pytest.mark.parametrize("variance", [0.0, -1.0, 2.0**52 * 1.01, float("nan")])
def test_a_variance_that_cannot_be_drawn_is_refused(variance: float) -> None:
    for draw in nonempty((integer_noise.discrete_gaussian, integer_noise.skellam)):
        with pytest.raises(ValueError, match="has a variance above 0"):
            draw(np.random.default_rng(1), variance, 3)
