"""Guarantees of released words, against the mechanisms themselves."""

import math

import numpy as np
import pytest
from scipy import stats

from fedtext.accounting import composition
from fedtext.accounting.heavy_hitters import sum_sigma, sum_threshold, triehh_sample, triehh_threshold
from fedtext.errors import UserError
from tests.loops import nonempty


@pytest.mark.parametrize(
    ("epsilon", "delta", "length"), [(2.0, 1e-5, 10), (4.0, 1e-6, 10), (8.0, 1e-9, 3), (40, 0.1, 8)]
)
def test_one_level_of_a_trie_is_private(epsilon: float, delta: float, length: int) -> None:
    """A prefix with c of n votes is found with the probability that a sample has theta of them.

    One vote more or less changes it by a factor of e^(epsilon / length) at most, or by delta.
    """
    clients, theta = 20_000, triehh_threshold(epsilon, delta, length)
    sample, level = triehh_sample(clients, epsilon, theta, length), epsilon / length
    counts = np.arange(clients + 1)
    found = stats.hypergeom.sf(theta - 1, clients, counts, sample)
    lost = stats.hypergeom.cdf(theta - 1, clients, counts, sample)
    assert (found[1:] <= math.exp(level) * found[:-1] + delta).all()
    assert (lost[:-1] <= math.exp(level) * lost[1:] + delta).all()
    assert found[: theta + 1].max() <= delta, "what only few can show is hardly found"


@pytest.mark.parametrize(
    ("epsilon", "delta", "length"), [(2.0, 1e-5, 1), (2.0, 1e-7, 1), (4.0, 1e-7, 3), (50, 1e-9, 30)]
)
def test_a_trie_of_few_clients_is_private_or_has_no_votes(epsilon: float, delta: float, length: int) -> None:
    """A sample hardly larger than theta would show whether the last client has the word of all others."""
    theta, voted = triehh_threshold(epsilon, delta, length), 0
    for clients in nonempty(range(20, 1500, 20)):
        sample, level = triehh_sample(clients, epsilon, theta, length), epsilon / length
        voted += sample > 0
        counts = np.arange(clients + 1)
        found = stats.hypergeom.sf(theta - 1, clients, counts, sample)
        lost = stats.hypergeom.cdf(theta - 1, clients, counts, sample)
        assert (found[1:] <= math.exp(level) * found[:-1] + delta / length).all()
        assert (lost[:-1] <= math.exp(level) * lost[1:] + delta / length).all()
    assert voted


def test_a_threshold_is_no_larger_than_delta_asks() -> None:
    def failing(theta: int) -> float:
        return (theta - 2) / ((theta - 3) * math.factorial(theta))

    for delta in nonempty([1e-2, 1e-5, 1e-9]):
        theta = triehh_threshold(1.0, delta, 10)
        assert failing(theta) <= delta < failing(theta - 1)
    assert triehh_threshold(1.0, 0.5, 10) == 4
    assert triehh_threshold(30.0, 0.5, 10) == math.ceil(math.exp(3) - 1)


def test_a_sample_grows_with_epsilon_and_clients() -> None:
    assert triehh_sample(1_000_000, 4.0, 10, 10) == math.floor(100_000 * (1 - math.exp(-0.4)))
    assert triehh_sample(100, 0.1, 10, 10) == 0


@pytest.mark.parametrize("words", [1, 7, 100])
def test_words_of_one_client_are_released_with_half_of_delta_at_most(words: int) -> None:
    epsilon, delta = 1.0, 1e-3
    sigma = sum_sigma(epsilon, delta)
    assert composition.gaussian(sigma, 1, delta / 2) <= epsilon
    least = sum_threshold(sigma, delta, words)
    any_of = [
        -math.expm1(count * math.log(stats.norm.cdf((least - count**-0.5) / sigma))) for count in range(1, words + 1)
    ]
    assert max(any_of) == pytest.approx(delta / 2, rel=1e-6)


def test_noise_that_cannot_be_computed_is_that_of_the_vocabulary() -> None:
    pytest.importorskip("dp_accounting")
    with pytest.raises(UserError, match=r"^corpus\.vocabulary\.private\.epsilon: no noise gives"):
        sum_sigma(1e-12, 1e-12)
