"""The same numbers by jax-privacy, where it is installed, as by ``make test-all``: the extra ``oracle``."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedtext.matrix_noise import Banded, Buffered, InverseBanded, inverse_square_root, optimal_bands
from fedtext.matrix_noise import optimal_buffers as buffers_of
from fedtext.matrix_noise.banded import Goal
from fedtext.matrix_noise.square_root import square_root
from tests.fedtext.matrix_noise.dense import matrix

jax = pytest.importorskip("jax")
pytest.importorskip("jax_privacy")
jax.config.update("jax_enable_x64", True)
from jax_privacy.matrix_factorization import buffered_toeplitz, sensitivity, toeplitz  # noqa: E402

SIZES = [(64, 64), (60, 16), (50, 7)]


@pytest.mark.parametrize(("rounds", "separation"), SIZES)
@pytest.mark.parametrize("kind", ["bands", "buffers", "inverse", "independent"])
def test_sensitivities_and_errors_agree(kind: str, rounds: int, separation: int) -> None:
    made = {
        "bands": lambda: Banded(rounds, separation, square_root(min(separation, 8))),
        "buffers": lambda: Buffered(rounds, separation, *buffers_of(rounds, separation, 3)),
        "inverse": lambda: InverseBanded(rounds, separation, inverse_square_root(6)),
        "independent": lambda: Banded(rounds, separation, (1.0,)),
    }[kind]()
    column = jax.numpy.asarray(made.column)
    squared = toeplitz.minsep_sensitivity_squared(column, separation, n=rounds)
    assert_allclose(made.sensitivity() ** 2, squared, rtol=1e-9)
    assert_allclose(made.alone() ** 2, toeplitz.sensitivity_squared(column, rounds), rtol=1e-9)
    assert_allclose(made.variances(), toeplitz.per_query_error(strategy_coef=column, n=rounds), rtol=1e-9)
    assert_allclose(made.inverse(), toeplitz.inverse_coef(column, rounds), atol=1e-9)
    times = -(-rounds // separation)
    bound = sensitivity.get_min_sep_sensitivity_upper_bound(jax.numpy.asarray(matrix(made)), separation, times)
    assert made.sensitivity() <= float(bound) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["mean", "max"])
@pytest.mark.parametrize(("rounds", "bands"), [(64, 8), (48, 48), (100, 3)])
def test_optimal_bands_agree(goal: Goal, rounds: int, bands: int) -> None:
    """For one participation; ours are rounded to six digits."""
    reduce = {"mean": jax.numpy.mean, "max": jax.numpy.max}[goal]
    theirs = np.array(toeplitz.optimize_banded_toeplitz(rounds, bands, reduction_fn=reduce, max_optimizer_steps=2000))
    ours = np.array(optimal_bands(rounds, rounds, bands, goal))
    least = float(toeplitz.loss(jax.numpy.asarray(theirs), rounds, reduce))
    found = getattr(Banded(rounds, rounds, tuple(ours.tolist())).errors(), goal) ** 2
    assert_allclose(found, least, rtol=1e-6)
    assert_allclose(ours, theirs / theirs[0], atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["mean", "max"])
@pytest.mark.parametrize(("rounds", "separation"), [(64, 64), (200, 50), (256, 32)])
def test_optimal_buffers_are_no_worse(goal: Goal, rounds: int, separation: int) -> None:
    times = -(-rounds // separation)
    blt = buffered_toeplitz.optimize(n=rounds, min_sep=separation, max_participations=times, error=goal, max_buffers=4)
    decays, scales = np.array(blt.buf_decay), np.array(blt.output_scale)
    theirs = Buffered(rounds, separation, tuple(decays.tolist()), tuple(scales.tolist()))
    assert_allclose(theirs.column, blt.toeplitz_coefs(rounds), rtol=1e-9)
    ours = Buffered(rounds, separation, *buffers_of(rounds, separation, len(decays), goal))
    assert getattr(ours.errors(), goal) <= getattr(theirs.errors(), goal) * (1 + 1e-6)
