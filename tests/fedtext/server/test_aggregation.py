"""The weighted sum of updates against exact fractions, in any order and over any parts."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtext.aggregations.norm_bounded import NormBounded
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update
from fedtext.server.aggregation import Summation
from fedtext.server.weighted_sum import WeightedSum
from fedtext.state.fingerprint import fingerprint
from fedtext.state.versions import VERSIONS
from tests import tiny
from tests.loops import nonempty

LAYOUT = Layout({TABLE: (4, 2), "w": (3,)})
UNIT = Fraction(1, 2**38)  # what addends are rounded to multiples of


def update(client: int, samples: int, w: Sequence[float], rows: Sequence[int] = (), value: float = 0.0) -> Update:
    """Rows of the table that all change by ``value``."""
    table = np.full((len(rows), 2), value, np.float32)
    return Update(client, samples, {TABLE: table, "w": np.array(w, np.float32)}, np.array(rows, np.int32))


def total(updates: Sequence[Update], scale: float, **how: Any) -> WeightedSum:
    made = WeightedSum(LAYOUT, scale, **({"uniform": False, "holders_only": False} | how))
    for each in updates:
        made.add(each)
    return made


def test_the_sum_is_that_of_addends_rounded_to_a_common_unit() -> None:
    """In exact fractions: w_k delta_k / scale to the nearest multiple of 2^-38, whose sum no order can change."""
    made = [
        update(0, 7, [0.1, -3.3, 1e-9], [0, 2], 0.7),
        update(1, 5, [1e3, 2e-5, -1e-6], [2, 3], -0.3),
        update(2, 11, [-999.9, 0.3, 1 / 3], [1], 5.5),
    ]
    scale = 23.0
    got = LAYOUT.views(total(made, scale).sum_N)
    for place in range(3):
        addends = [Fraction(u.samples / scale) * Fraction(float(u.tensors["w"][place])) for u in made]
        assert Fraction(float(got["w"][place])) == sum(round(Fraction(float(a)) / UNIT) * UNIT for a in addends)
    held = [
        Fraction(float(np.float64(np.float32(0.7)) * (7 / scale))),
        Fraction(float(np.float64(np.float32(-0.3)) * (5 / scale))),
    ]
    assert Fraction(float(got[TABLE][2, 0])) == sum(round(part / UNIT) * UNIT for part in held)
    assert got[TABLE][0, 1] == pytest.approx(0.7 * 7 / 23)


def test_every_tensor_starts_at_a_multiple_of_sixteen_floats() -> None:
    layout = Layout({"a": (4, 2), "b": (17,), "c": (16,), "d": ()})
    assert layout.starts == {"a": 0, "b": 16, "c": 48, "d": 64}
    assert layout.size == 80


@pytest.mark.parametrize(("weights", "scale"), [("uniform", 3), ("samples", 12)])
def test_a_sum_is_scaled_by_the_weights_of_all_clients_there_are(weights: str, scale: float) -> None:
    assert Summation(tiny.experiment(server={"weights": weights}), LAYOUT, [2, 3, 7]).scale == scale


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("noise", [None, {"multiplier": 1.0}])
def test_small_changes_are_not_lost_among_a_million_clients(weights: str, noise: Any) -> None:
    """Of whom a hundred take part. With noise of the server, addends are rounded towards zero."""
    samples_K = np.random.default_rng(0).integers(1, 1000, 1_000_000)
    server = {"weights": "uniform" if noise else weights, "noise": noise}
    uplink = [{"clip": {"norm": 1.0}}] if noise else []
    participation = {"fraction": 1e-4, "sampling": "poisson"} if noise else {"fraction": 1e-4}
    made = tiny.experiment(server=server, uplink=uplink, wire={"rows": "all"}, participation=participation)
    summation = Summation(made, LAYOUT, samples_K)
    assert math.frexp(summation.scale / summation.unit)[0] == 0.5, "a power of two"
    values = np.random.default_rng(1).normal(0, 1e-6, (100, 3)).astype(np.float32)
    found = summation.empty()
    for client, w in enumerate(nonempty(values)):
        sent = update(client, int(samples_K[client]), w)
        summation.check(sent)
        found.add(sent)
    weights_K = np.ones(100) if summation.uniform else samples_K[:100]
    expected = weights_K @ values.astype(np.float64) / weights_K.sum()
    mean = LAYOUT.views(found.mean())["w"]
    assert np.abs(mean - expected).max() < 1e-9, "a thousandth of the changes"


@pytest.mark.parametrize(
    "changes",
    [
        {"server": {"buffer": {"size": 10}}, "participation": {"pace": {}}},
        {"participation": {"dropout": 0.99999}},
        {"participation": {"fraction": 1e-3, "over_selection": 100, "dropout": 0.9999, "pace": {}}},
    ],
    ids=["buffer", "dropout", "over-selection"],
)
def test_small_changes_are_not_lost_where_few_of_many_clients_return(changes: dict[str, Any]) -> None:
    summation = Summation(tiny.experiment(**changes), LAYOUT, np.full(1_000_000, 20))
    values = np.array([1e-6, 3e-7, 1.23456e-5], np.float32)
    found = summation.empty()
    for client in range(10):
        found.add(update(client, 20, values))
    assert np.abs(LAYOUT.views(found.mean())["w"] / values - 1).max() < 1e-4


def test_sums_that_change_with_those_who_return_change_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    buffered: dict[str, Any] = {"server": {"buffer": {"size": 10}}, "participation": {"pace": {}}}
    cases = [(buffered, 5000), ({"participation": {"dropout": 0.9}}, 5000), (buffered, 500), ({}, 5000)]
    found = [fingerprint(tiny.experiment(**changes), "", clients) for changes, clients in cases]
    monkeypatch.setitem(VERSIONS, "summed", VERSIONS["summed"] + 1)
    again = [fingerprint(tiny.experiment(**changes), "", clients) for changes, clients in cases]
    assert [one != other for one, other in zip(found, again, strict=True)] == [True, True, False, False]


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.floats(-1000, 1000, width=32)), min_size=2, max_size=9),
    st.randoms(use_true_random=False),
)
def test_sums_before_any_rounding_to_float32_have_the_same_bits_in_any_order(clients: Any, random: Any) -> None:
    made = [update(n, samples, [v, v / 3, v / 7], [n % 4], v / 11) for n, (samples, v) in enumerate(clients)]
    scale = float(sum(each.samples for each in made))
    expected = total(made, scale, holders_only=True)
    random.shuffle(made)
    cut = random.randrange(len(made) + 1)
    parts = [total(part, scale, holders_only=True) for part in (made[cut:], made[:cut])]
    parts[0].merge(parts[1])
    assert parts[0].sum_N.tobytes() == expected.sum_N.tobytes()
    assert parts[0].weight == expected.weight
    first, second = parts[0].mean(), expected.mean()
    assert first is not None
    assert second is not None
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("uniform", [False, True])
def test_a_merged_sum_averages_rows_over_the_holders_of_all_parts(uniform: bool) -> None:
    """Row 1: 6 of a client with 1 sample in one part, 2 of a client with 3 samples in the other; row 0 has one holder,
    row 3 none."""
    one, other = update(0, 1, [4, 0, 0], [0, 1], 6.0), update(1, 3, [0, 8, 0], [1, 2], 2.0)
    scale = 2.0 if uniform else 4.0
    merged = total([one], scale, uniform=uniform, holders_only=True)
    merged.merge(total([other], scale, uniform=uniform, holders_only=True))
    mean_N = merged.mean()
    assert mean_N is not None
    views = LAYOUT.views(mean_N)
    row_1 = (6 + 2) / 2 if uniform else (1 * 6 + 3 * 2) / 4
    assert views[TABLE].tolist() == [[6, 6], [row_1, row_1], [2, 2], [0, 0]]
    assert views["w"].tolist() == ([2, 4, 0] if uniform else [1, 6, 0])


def test_a_mean_is_of_who_took_part_or_of_who_was_expected() -> None:
    """The scale, of all there are, drops out."""
    made = [update(0, 2, [3, 0, 0]), update(1, 4, [0, 3, 0])]
    of_participants = total(made, 600.0).mean()
    assert of_participants is not None
    assert LAYOUT.views(of_participants)["w"] == pytest.approx([1, 2, 0], abs=1e-8)
    of_expected = total(made, 8.0, uniform=True).mean(expected=4.0)
    assert of_expected is not None
    assert LAYOUT.views(of_expected)["w"].tolist() == [0.75, 0.75, 0]
    nobody = total([], 8.0, uniform=True)
    assert nobody.mean() is None
    zeros = nobody.mean(expected=4.0)
    assert zeros is not None
    assert not zeros.any()


def test_the_largest_addend_that_is_held_exactly_is_just_below_4096() -> None:
    total([update(0, 1, [4095.9, -4095.9, 0])], 1.0)
    for w in ([4096, 0, 0], [0, -4096, 0]):
        with pytest.raises(UserError, match="client 5 changed a parameter by 4096 in one round"):
            total([update(5, 1, w)], 1.0)
    total([update(5, 1, [4096, 0, 0])], 2.0)


@pytest.mark.parametrize("value", [0.5, 0.99, 1.5, 2.5, 1e6 + 0.9])
def test_no_update_becomes_longer_in_a_sum_that_is_rounded_inwards(value: float) -> None:
    """In units of 2^-38. To the nearest, 1.5 becomes 2: with noise of the server more than its clip has left."""
    part = value * float(UNIT)
    for sign in (1, -1):
        got = LAYOUT.views(total([update(0, 1, [sign * part, 0, 0])], 1.0, inward=True).sum_N)["w"][0]
        assert Fraction(float(got)) == sign * UNIT * int(np.float32(part) / float(UNIT))
        assert abs(got) <= part


def test_only_sums_with_noise_of_the_server_are_rounded_inwards() -> None:
    noisy = {"weights": "uniform", "noise": {"multiplier": 1.0}}
    for server, inward in (({}, False), (noisy, True)):
        made = tiny.experiment(server=server, uplink=["clip"] if server else [])
        assert Summation(made, LAYOUT, [1, 1]).empty().inward == inward  # type: ignore[attr-defined]


@pytest.mark.parametrize("small", [True, False])
def test_a_client_that_sends_all_rows_holds_them_all(small: bool) -> None:
    """Client 0 has row 1 alone, which it leaves as it is; client 1 adds one to every row, and has 3 of 4 texts."""
    rows = 4 if small else 40_000
    layout, whole = Layout({TABLE: (rows, 2)}), np.ones((rows, 2), np.float32)
    made = WeightedSum(layout, 4.0, uniform=False, holders_only=True)
    made.add(Update(0, 1, {TABLE: np.zeros((1, 2), np.float32)}, np.array([1], np.int32)))
    made.add(Update(1, 3, {TABLE: whole}))
    mean = made.mean()
    assert mean is not None
    assert layout.views(mean)[TABLE][:4, 0].tolist() == [1, 0.75, 1, 1]


def test_long_tensors_are_added_in_pieces_without_a_seam() -> None:
    rows, width = 40_000, 2
    layout, rng = Layout({TABLE: (rows, width), "w": (70_001,)}), np.random.default_rng(0)
    table, w = rng.normal(size=(rows, width)).astype(np.float32), rng.normal(size=70_001).astype(np.float32)
    order = rng.permutation(rows).astype(np.int32)
    made = WeightedSum(layout, 4.0, uniform=False, holders_only=False)
    made.add(Update(0, 3, {TABLE: table, "w": w}, order))
    views = layout.views(made.sum_N)
    assert np.allclose(views[TABLE][order], 0.75 * table.astype(np.float64), rtol=0, atol=2.0**-38)
    assert np.allclose(views["w"], 0.75 * w.astype(np.float64), rtol=0, atol=2.0**-38)


def test_a_row_that_is_longer_than_a_piece_is_added_whole() -> None:
    layout, rng = Layout({TABLE: (3, 40_000)}), np.random.default_rng(0)
    table = rng.normal(size=(2, 40_000)).astype(np.float32)
    made = WeightedSum(layout, 4.0, uniform=False, holders_only=False)
    made.add(Update(0, 3, {TABLE: table}, np.array([2, 0], np.int32)))
    got = layout.views(made.sum_N)[TABLE]
    assert np.allclose(got[[2, 0]], 0.75 * table.astype(np.float64), rtol=0, atol=2.0**-38)
    assert not got[1].any()


def test_a_merged_sum_counts_the_updates_of_all_parts() -> None:
    """Of four updates one in each part is longer than the norm."""
    aggregation = NormBounded(norm=1.0)
    layout = Layout({"w": (2,)})
    parts = []
    for first in (0, 2):
        part = WeightedSum(layout, 4.0, uniform=True, holders_only=False, aggregation=aggregation)
        for client, length in ((first, 0.5), (first + 1, 3.0)):
            part.add(Update(client, 1, {"w": np.array([length, 0], np.float32)}))
        parts.append(part)
    parts[0].merge(parts[1])
    assert (parts[0].updates, parts[0].scaled) == (4, 2)
    assert parts[0].metrics() == {"norm_scaled": 0.5}
