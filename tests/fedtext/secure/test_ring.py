"""Updates as integers, and their sums."""

from typing import Any

import numpy as np
import pytest

from fedtext.errors import UserError
from fedtext.layout import Layout
from fedtext.messages import Update
from fedtext.secure.ring import Ring, RingSum, in_integers
from fedtext.server.weighted_sum import WeightedSum
from tests import tiny
from tests.loops import nonempty

SAMPLES = [4, 8, 2]
SHAPES = {"a": (3, 5), "b": (), "c": (70_000,)}


def ring(samples: list[int] = SAMPLES, weights: str = "samples", **keys: Any) -> Ring:
    return Ring(tiny.experiment("fedavg", server={"secure_aggregation": keys, "weights": weights}), samples)


def update(client: int, largest: float = 0.5) -> Update:
    rng = np.random.default_rng(client)
    tensors = {name: rng.uniform(-largest, largest, shape).astype(np.float32) for name, shape in SHAPES.items()}
    return Update(client, SAMPLES[client], tensors)


def sent(made: Ring, given: Update) -> Update:
    return in_integers(given, made.integers(given)[0])


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_a_sum_of_integers_is_the_weighted_sum_to_half_a_step_of_each(weights: str) -> None:
    made, layout = ring(weights=weights), Layout(SHAPES)
    total = RingSum(layout, made, 14.0)
    exact = WeightedSum(layout, 14.0, uniform=weights == "uniform", holders_only=False)
    for client in range(3):
        total.add(sent(made, update(client)))
        exact.add(update(client))
    found, expected = layout.views(total.mean()), layout.views(exact.mean())
    bound = 3 * made.step / 2 * made.largest / total.weight
    for name in nonempty(SHAPES):
        assert np.abs(found[name] - expected[name]).max() <= bound * (1 + 1e-6)
    assert total.weight == exact.weight


def test_partial_sums_merge_in_any_order_to_the_same_bits() -> None:
    made, layout = ring(), Layout(SHAPES)
    sums = []
    for order in ((0, 1, 2), (2, 0, 1)):
        parts = [RingSum(layout, made, 14.0) for _ in range(2)]
        for place, client in enumerate(order):
            parts[place % 2].add(sent(made, update(client)))
        parts[1].merge(parts[0])
        sums.append(parts[1])
    assert sums[0].sum_N.tobytes() == sums[1].sum_N.tobytes()
    assert sorted(sums[0].members) == [0, 1, 2]
    assert sums[0].coordinates == 70_016


def test_the_largest_round_does_not_overflow() -> None:
    """All clients at the largest level in one coordinate: the sum is right, with the bits that are chosen."""
    samples = [1] * 300
    made, layout = ring(samples), Layout({"a": (2,)})
    total = RingSum(layout, made, 300.0)
    for client in range(300):
        total.add(sent(made, Update(client, 1, {"a": np.array([1.0, -1.0], np.float32)})))
    assert layout.views(total.mean())["a"] == pytest.approx([1.0, -1.0])
    assert made.levels == 2**22 - 1  # 32 bits, less nine for 300 clients, less the sign


def test_what_is_beyond_the_range_is_cut_off_and_counted() -> None:
    made = ring(range=0.25)
    integers, cut = made.integers(update(1))
    values = integers.view(np.int32) * made.step
    whole = np.concatenate([tensor.reshape(-1) for tensor in update(1).tensors.values()])
    assert cut == np.mean(np.abs(whole) > 0.25)
    assert 0.4 < cut < 0.6
    assert np.abs(values - np.clip(whole, -0.25, 0.25)).max() <= made.step / 2 * (1 + 1e-6)
    assert made.integers(update(1, 0.2))[1] == 0


def test_no_norm_grows_where_the_server_adds_noise() -> None:
    keys = {"secure_aggregation": {"bits": 4}, "weights": "uniform", "noise": {"multiplier": 1}}
    experiment = tiny.experiment("fedavg", server=keys, uplink=["clip"], participation={"sampling": "poisson"})
    made, given = Ring(experiment, SAMPLES), update(0)
    values = made.integers(given)[0].view(np.int32) * made.step
    whole = np.concatenate([tensor.reshape(-1) for tensor in given.tensors.values()])
    assert (np.abs(values) <= np.abs(whole) * (1 + 1e-6)).all()
    assert np.abs(values).max() > 0


def test_what_is_sent_is_the_memory_that_masks_are_added_to() -> None:
    given = update(2)
    integers_N, _ = ring().integers(given)
    made, again_N = in_integers(given, integers_N), integers_N.copy()
    integers_N += np.uint32(1)
    assert {name: tensor.shape for name, tensor in made.tensors.items()} == SHAPES
    assert np.concatenate([tensor.reshape(-1) for tensor in made.tensors.values()]).tobytes() == integers_N.tobytes()
    assert (integers_N - again_N == 1).all()


def test_canaries_are_in_the_sum_too() -> None:
    """As many of them as there are may add the largest level in one coordinate."""
    sections: dict[str, Any] = {"uplink": [{"clip": {"norm": 1.0}}], "privacy": {"canaries": {"clients": 1000}}}

    def made(bits: int | None = None, **noise: Any) -> Ring:
        server = {"weights": "uniform", "noise": {"multiplier": 1, **noise}, "secure_aggregation": {"bits": bits}}
        participation = {"min_clients": 4} if noise else {}
        experiment = tiny.experiment("fedavg", server=server, participation=participation, **sections)
        return Ring(experiment, [1] * 4, coordinates=5000)

    assert 2**30 < (1000 + 4) * made().levels < 2**31
    assert 2**29 < (1000 + 4) * made(mechanism={"skellam": {}}).levels < 2**31, "and their noise"
    for noise, advice in nonempty([({}, "set bits to 22"), ({"mechanism": {"skellam": {}}}, "lower bits")]):
        with pytest.raises(UserError, match=f"the sum of 1004 updates of 24 bits .* need more than 32: {advice}"):
            made(24, **noise)


def test_bits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"the sum of 300 updates of 24 bits may need more than 32: set bits to 23 or"):
        ring([1] * 300, bits=24)
