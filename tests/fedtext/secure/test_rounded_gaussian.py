"""Exact samples of rounded Gaussian noise, and the server's noise that is made of them."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from fedtext.layout import Layout
from fedtext.secure import integer_noise
from fedtext.secure.integer_noise import rounded_gaussian
from fedtext.server.noise import ServerNoise, add_snapped_noise, deviation
from fedtext.state.noise_key import NoiseKey
from tests.fedtext.ledger.noisy import central
from tests.loops import nonempty


@pytest.mark.parametrize("sigma", [0.3, 2.0, 17.0])
def test_frequencies_are_those_of_rounded_gaussian_noise(sigma: float) -> None:
    count = 200_000
    found = rounded_gaussian(np.random.default_rng(1), sigma, count)
    reach = math.ceil(3 * sigma) + 1
    edges = np.arange(-reach, reach + 1) + 0.5
    chance = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], edges, [np.inf]]) / sigma))
    seen = np.bincount(np.clip(found, -reach, reach + 1) + reach, minlength=len(chance))
    some = chance * count >= 5
    assert stats.chisquare(seen[some], chance[some] / chance[some].sum() * seen[some].sum()).pvalue > 1e-4


def test_more_bits_decide_as_double_precision_does_where_that_is_sure() -> None:
    rng, sigma = np.random.default_rng(2), 2.0**20
    for uniform in nonempty(rng.random(200).tolist()):
        low, high = np.rint(sigma * ndtri(uniform) - 1e-3), np.rint(sigma * ndtri(uniform) + 1e-3)
        if low == high:
            assert integer_noise._inverted(rng, uniform, sigma) == low


def test_where_double_precision_cannot_decide_more_bits_do(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    settled = integer_noise._inverted

    def counted(rng: np.random.Generator, uniform: float, sigma: float) -> int:
        asked.append(uniform)
        return settled(rng, uniform, sigma)

    monkeypatch.setattr(integer_noise, "_inverted", counted)
    monkeypatch.setattr(integer_noise, "_INVERSE", 2.0**-3)
    found = rounded_gaussian(np.random.default_rng(3), 3.0, 2000)
    assert 100 < len(asked) < 2000
    assert abs(found.std() - math.sqrt(9 + 1 / 12)) < 4 * 3 / math.sqrt(2 * 2000)
    assert settled(np.random.default_rng(0), 0.0, 1.0) <= -8, "a number that begins with 53 zeros"
    assert settled(np.random.default_rng(0), 1 - 2.0**-53, 1.0) >= 8


def test_a_sigma_that_is_none_is_refused() -> None:
    for sigma in nonempty([0.0, -1.0, 2.0**27]):
        with pytest.raises(ValueError, match="sigma above 0 and at most"):
            rounded_gaussian(np.random.default_rng(0), sigma, 3)


def _noised(mean: float, deviation: float, bound: float, layout: Layout) -> np.ndarray:
    change_N = layout.pack({"a": np.full(layout.shapes["a"], mean, np.float32)}).astype(np.float64)
    add_snapped_noise(change_N, layout, deviation, bound, NoiseKey(b"key"), 1)
    return change_N[: layout.numbers]


def test_snapped_noise_is_of_its_deviation_and_leaves_multiples_of_a_power_of_two() -> None:
    layout, deviation = Layout({"a": (400, 500)}), 0.3
    noise_N = _noised(0.7, deviation, 1.0, layout) - 0.7
    assert abs(noise_N.mean()) < 4 * deviation / math.sqrt(layout.numbers)
    assert abs(noise_N.std() - deviation) < 4 * deviation / math.sqrt(2 * layout.numbers)
    unit = 2.0 ** (math.floor(math.log2(deviation)) - 20)
    whole_N = _noised(0.7, deviation, 1.0, layout) / unit
    assert (whole_N == np.rint(whole_N)).all()
    assert len(np.unique(whole_N % 64)) == 64, "of all multiples"


@pytest.mark.parametrize("secret", [True, False])
def test_a_run_with_a_secret_key_has_this_noise_and_another_has_not(secret: bool) -> None:
    layout, change_N = Layout({"a": (1000,)}), np.full(1008, 0.01)
    made = central(0.5, {"multiplier": 2.0}, privacy={"noise": "secret" if secret else "reproducible"})
    change_N[1000:] = 0
    ServerNoise(made, 10, layout, NoiseKey(bytes(32), secret=secret)).add(change_N, 1)
    unit = 2.0 ** (math.floor(math.log2(deviation(made, 10))) - 20)
    whole_N = change_N[:1000] / unit
    assert (whole_N == np.rint(whole_N)).all() == secret


def test_noise_is_larger_by_what_rounding_adds() -> None:
    layout, deviation = Layout({"a": (100,)}), 1.0
    wide = [_noised(0.0, deviation, bound, layout) for bound in (1e9, 1e-3, 1e-5)]
    unit = 2.0**-20
    factors = [1 + unit + 10 * unit / bound for bound in (1e9, 1e-3, 1e-5)]
    for noise_N, factor in nonempty(list(zip(wide[1:], factors[1:], strict=True))):
        np.testing.assert_allclose(noise_N / wide[0], factor / factors[0], rtol=1e-3)


@pytest.mark.parametrize(("cohort", "size"), [(None, 5), (2, 5), (80, 80)])
def test_rounding_is_small_beside_a_clients_part_of_a_simulated_cohort_too(cohort: int | None, size: int) -> None:
    noise = {"multiplier": 2.0} | ({"cohort_size": cohort} if cohort else {})
    made = ServerNoise(central(0.5, noise), 10, Layout({"a": (1000,)}), NoiseKey(bytes(32), secret=True))
    one = ServerNoise(central(0.5, {"multiplier": 2.0}), 10, Layout({"a": (1000,)}), NoiseKey(bytes(32), secret=True))
    assert made.bound == pytest.approx(one.bound * 5 / size)
