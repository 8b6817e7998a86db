"""The guarantee of shuffled bits, against the exact distributions and against what is known in the limit."""

import math

import numpy as np
import pytest
from scipy import stats

from fedtext.accounting import composition
from fedtext.accounting.shuffle import _ORDERS, _log_moments, divergences, shuffled
from tests.loops import nonempty


def _directly(epsilon: float, clients: int) -> np.ndarray:
    """Renyi divergences of the pairs (N, c), each summed in full."""
    flip = 1 / (1 + math.exp(epsilon))
    total = np.zeros(len(_ORDERS))
    for number in range(clients):
        ones = np.arange(number + 2)
        with_, without = stats.binom.pmf(ones - 1, number, 0.5), stats.binom.pmf(ones, number, 0.5)
        p, q = (1 - flip) * with_ + flip * without, flip * with_ + (1 - flip) * without
        weight = stats.binom.pmf(number, clients - 1, 2 * flip)
        with np.errstate(over="ignore"):
            total += weight * (p * np.exp((_ORDERS[:, None] - 1) * np.log(p / q))).sum(axis=1)
    return np.log(total) / (_ORDERS - 1)


@pytest.mark.parametrize(("epsilon", "clients"), [(0.1, 1), (0.1, 30), (0.5, 12)])
def test_divergences_are_those_of_the_distributions(epsilon: float, clients: int) -> None:
    few = _ORDERS < 500  # larger powers are no floats
    np.testing.assert_allclose(divergences(epsilon, clients)[few], _directly(epsilon, clients)[few], rtol=1e-8)


def test_all_ones_are_summed() -> None:
    """All of N random bits and the client's own are ones with probability (1 - p) 2^-N, and the largest loss."""
    epsilon, flip = 8.0, 1 / (1 + math.exp(8.0))
    for number in nonempty([30, 36, 50, 80]):
        least = math.log1p(-flip) - number * math.log(2) + (_ORDERS - 1) * epsilon
        assert (_log_moments(number, flip) >= least - 1e-9).all()


def test_numbers_of_random_bits_that_are_taken_together_hide_no_more() -> None:
    exact, found = _directly(0.05, 300), divergences(0.05, 300)
    assert (found >= exact * (1 - 1e-9)).all()
    assert (found[_ORDERS < 100] <= 1.1 * exact[_ORDERS < 100]).all()


def test_one_client_alone_gains_nothing() -> None:
    assert shuffled(1.0, 1, 1, 1e-5) == pytest.approx(composition.optimal(1.0, 1, 1e-5))
    assert shuffled(1.0, 1, 1, 1e-5) <= 1.0


def test_bits_hide_no_less_than_without_a_shuffler() -> None:
    """Of few clients it hides nothing, and what composition gives holds all the same."""
    for epsilon, clients, count in nonempty([(0.5, 1, 1000), (3.0, 3, 50)]):
        assert shuffled(epsilon, clients, count, 1e-5) <= composition.optimal(epsilon, count, 1e-5) < epsilon * count


def test_many_bits_are_as_gaussian_noise_on_their_sums() -> None:
    """The sum of n bits has a variance of about n p (1 - p), and a client's bit shifts it by 1 - 2 p."""
    for epsilon, clients, count in nonempty([(0.2, 1000, 50_000), (1.0, 100_000, 50_000), (0.05, 400, 20_000)]):
        flip = 1 / (1 + math.exp(epsilon))
        mu = math.sqrt(count * (1 - 2 * flip) ** 2 / (clients * flip * (1 - flip)))
        limit = composition.gaussian(1 / mu, 1, 1e-5)
        assert limit < shuffled(epsilon, clients, count, 1e-5) < 1.5 * limit


def test_more_clients_hide_more_and_more_bits_less() -> None:
    known = shuffled(0.5, 500, 1000, 1e-5)
    assert shuffled(0.5, 1000, 1000, 1e-5) < known < shuffled(0.5, 500, 2000, 1e-5)
    assert shuffled(0.5, 500, 1000, 1e-6) > known
    assert shuffled(0.4, 500, 1000, 1e-5) < known


def test_the_bound_covers_the_exact_delta_of_one_bit() -> None:
    epsilon, clients = 1.0, 200
    flip, claimed = 1 / (1 + math.exp(epsilon)), shuffled(epsilon, clients, 1, 1e-4)
    failing = 0.0
    for number in range(clients):
        ones = np.arange(number + 2)
        with_, without = stats.binom.pmf(ones - 1, number, 0.5), stats.binom.pmf(ones, number, 0.5)
        p, q = (1 - flip) * with_ + flip * without, flip * with_ + (1 - flip) * without
        failing += stats.binom.pmf(number, clients - 1, 2 * flip) * np.maximum(p - math.exp(claimed) * q, 0).sum()
    assert failing <= 1e-4
    assert claimed < epsilon / 2
