"""Coefficients that are optimised: no other ones near them are better, and more of them are never worse."""

import math

import numpy as np
import pytest

from fedtext.matrix_noise import Banded, Buffered, InverseBanded, Tree, inverse_square_root, optimal_bands
from fedtext.matrix_noise import optimal_buffers as buffers_of
from fedtext.matrix_noise.banded import Goal
from fedtext.matrix_noise.square_root import square_root
from tests.loops import nonempty

pytest.importorskip("scipy")


def _error(made: Banded | Buffered, goal: Goal) -> float:
    return made.errors().max if goal == "max" else made.errors().mean


@pytest.mark.parametrize("goal", ["mean", "max"])
@pytest.mark.parametrize(("rounds", "separation", "bands"), [(64, 64, 8), (100, 16, 16), (100, 7, 3), (5, 9, 8)])
def test_no_coefficients_near_the_optimal_bands_are_better(
    goal: Goal, rounds: int, separation: int, bands: int
) -> None:
    found = optimal_bands(rounds, separation, bands, goal)
    best, rng = _error(Banded(rounds, separation, found), goal), np.random.default_rng(0)
    assert len(found) == min(bands, rounds)
    assert best <= _error(Banded(rounds, separation, square_root(len(found))), goal) * (1 + 1e-9)
    for size in nonempty([1e-3, 1e-2, 0.1] * 10):
        other = (1.0, *(np.array(found[1:]) + size * rng.standard_normal(len(found) - 1)).tolist())
        assert _error(Banded(rounds, separation, other), goal) > best * (1 - 1e-9)


@pytest.mark.parametrize("goal", ["mean", "max"])
@pytest.mark.parametrize(("rounds", "separation"), [(64, 64), (100, 16)])
def test_no_buffers_near_the_optimal_ones_are_better(goal: Goal, rounds: int, separation: int) -> None:
    decays, scales = map(np.array, buffers_of(rounds, separation, 2, goal))
    best, rng = _error(Buffered(rounds, separation, tuple(decays), tuple(scales)), goal), np.random.default_rng(0)
    for size in nonempty([1e-3, 1e-2] * 15):
        near = np.clip(decays + size * rng.standard_normal(2), 0, 1)
        other = np.abs(scales + size * rng.standard_normal(2))
        assert _error(Buffered(rounds, separation, tuple(near), tuple(other)), goal) > best * (1 - 1e-6)


def test_more_bands_and_buffers_are_no_worse_and_all_beat_the_tree_and_independent_noise() -> None:
    rounds, separation = 256, 32
    by_bands = [_error(Banded(rounds, separation, optimal_bands(rounds, separation, n)), "mean") for n in (1, 2, 8, 32)]
    by_buffers = [_error(Buffered(rounds, separation, *buffers_of(rounds, separation, n)), "mean") for n in (1, 2, 3)]
    assert by_bands == sorted(by_bands, reverse=True)
    assert by_buffers[0] * (1 + 1e-6) >= by_buffers[1] >= by_buffers[2] * (1 - 1e-6)
    tree = Tree(rounds, separation).errors().mean
    assert by_bands[0] == pytest.approx(math.sqrt(8 * 257 / 2)), "independent noise"
    assert by_bands[0] > tree > by_buffers[0]
    assert by_bands[-1] < by_buffers[-1] < InverseBanded(rounds, separation, inverse_square_root(32)).errors().mean


def test_for_one_participation_the_largest_error_is_nearly_that_of_the_square_root_which_is_optimal() -> None:
    """Fichtenberger et al. 2023: sum_t r_t^2 is the least that a Toeplitz factorisation reaches."""
    rounds = 200
    least = float(np.square(square_root(rounds)).sum())
    whole = InverseBanded(rounds, rounds, inverse_square_root(rounds)).errors().max
    assert whole == pytest.approx(least)
    assert least <= _error(Banded(rounds, rounds, optimal_bands(rounds, rounds, rounds, "max")), "max") < least * 1.0001
    assert least < _error(Buffered(rounds, rounds, *buffers_of(rounds, rounds, 3, "max")), "max") < least * 1.01
