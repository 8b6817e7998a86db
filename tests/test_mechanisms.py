"""Mechanisms, one by one and in a run."""

import math

import numpy as np
import pytest

from fedtext.federation import Federation
from fedtext.fleet import LocalFleet
from fedtext.mechanisms import Clip, Gaussian
from fedtext.parameters import initial
from fedtext.seeding import generator
from tests import tiny

RNG = generator(0, "test")


def test_clip_scales_the_whole_update_to_its_norm() -> None:
    delta = {"a": np.array([3.0, 0.0], np.float32), "b": np.array([[4.0]], np.float32)}  # norm 5
    clipped = Clip(norm=1).apply(delta, {}, RNG)
    assert np.allclose(clipped["a"], [0.6, 0])
    assert np.allclose(clipped["b"], [[0.8]])
    same = Clip(norm=5).apply(delta, {}, RNG)
    assert all(np.array_equal(same[name], delta[name]) for name in delta)
    zero = Clip(norm=1).apply({"a": np.zeros(2, np.float32)}, {}, RNG)
    assert np.array_equal(zero["a"], [0, 0])


def test_gaussian_noise_has_the_mean_and_deviation_it_says() -> None:
    count, sigma = 200_000, 0.3
    noise = Gaussian(sigma=sigma).apply({"a": np.ones(count, np.float32)}, {}, RNG)["a"] - 1
    assert abs(noise.mean()) < 4 * sigma / math.sqrt(count)
    assert abs(noise.std() - sigma) < 4 * sigma / math.sqrt(2 * count)


def test_noise_differs_between_clients_and_rounds_and_repeats_with_the_seed() -> None:
    draws = {
        key: Gaussian().apply({"a": np.zeros(4, np.float32)}, {}, generator(key[0], "uplink/0/gaussian", *key[1:]))["a"]
        for key in ((0, 1, 1), (0, 1, 2), (0, 2, 1), (1, 1, 1))
    }
    assert len({draw.tobytes() for draw in draws.values()}) == 4
    again = Gaussian().apply({"a": np.zeros(4, np.float32)}, {}, generator(0, "uplink/0/gaussian", 1, 1))["a"]
    assert np.array_equal(again, draws[0, 1, 1])


@pytest.mark.parametrize("method", ["fedavg", "kteps"])
def test_a_clip_nobody_reaches_changes_nothing(method: str) -> None:
    corpus, finals = tiny.corpus(), []
    for uplink in ([], [{"clip": {"norm": 1e9}}]):
        experiment = tiny.experiment(method, uplink=uplink)
        shared, private = initial(experiment, corpus)
        federation = Federation(experiment, shared, LocalFleet(experiment, corpus, private), None)
        list(federation.run())
        finals.append(federation.flat.tobytes())
    assert finals[0] == finals[1]
