"""Where tensors lie in a flat buffer, and what the server reads of a payload: sizes and limits to the number."""

import re
from typing import Any

import numpy as np
import pytest

from fedtext.layout import TABLE, Layout, finite
from fedtext.messages import Update
from fedtext.server.aggregation import FARTHEST, Summation
from fedtext.server.weighted_sum import LARGEST
from tests import tiny
from tests.loops import nonempty

SHAPES = {"a": (3,), TABLE: (17, 2), "scalar": (), "b": (16,)}


def test_tensors_begin_on_cache_lines() -> None:
    """Of 16 floats: 3 take one line, 34 take three, 1 and 16 take one each."""
    layout = Layout(SHAPES)
    assert layout.places() == [("a", 0, (3,)), (TABLE, 16, (17, 2)), ("scalar", 64, ()), ("b", 80, (16,))]
    assert layout.size == 96
    assert layout.numbers == 3 + 34 + 1 + 16
    assert Layout({}).numbers == Layout({}).size == 0


def test_what_is_packed_comes_back_and_gaps_are_zeros() -> None:
    layout, rng = Layout(SHAPES), np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    flat = layout.pack(tensors)
    assert flat.dtype == np.float32
    for name, view in nonempty(layout.views(flat).items()):
        assert np.array_equal(view, tensors[name]), name
        assert np.shares_memory(view, flat)
    assert np.flatnonzero(flat == 0).tolist() == [*range(3, 16), *range(50, 64), *range(65, 80)]
    assert layout.with_rows(5).shapes == SHAPES | {TABLE: (5, 2)}


def test_finite_looks_at_every_number() -> None:
    huge = np.finfo(np.float32).max
    assert finite(np.array([huge, huge, -huge], np.float32)), "their sum is not, and they are"
    for bad in (np.nan, np.inf, -np.inf):
        assert not finite(np.array([0, bad, 1], np.float32))
    assert finite(np.zeros(0, np.float32))


@pytest.mark.parametrize(
    ("server", "largest", "what"),
    [
        ({}, 4 * LARGEST, "an exact sum"),  # 25 of 100 texts
        ({"weights": "uniform"}, 2 * LARGEST, "an exact sum"),  # one of two clients
        ({"aggregation": {"norm_bounded": {"norm": 1.0}}}, FARTHEST, "an exact sum"),
        ({"aggregation": {"norm_bounded": {"norm": 1e9}}}, 4 * LARGEST, "an exact sum"),
        ({"aggregation": "attention"}, FARTHEST, "aggregation attention"),
        ({"aggregation": "median"}, FARTHEST, "aggregation median"),
    ],
)
def test_an_update_is_refused_from_the_first_number_that_is_too_large_for_its_aggregation(
    server: dict[str, Any], largest: float, what: str
) -> None:
    intake = Summation(tiny.experiment(server=server), Layout({"b": (3,)}), [25, 75])

    def check(number: float) -> None:
        intake.check(Update(0, 25, {"empty": np.zeros(0, np.float32), "b": np.array([0, number, 1], np.float32)}))

    for sign in (1, -1):
        check(sign * np.nextafter(np.float32(largest), np.float32(0)))
        words = re.escape(f"it changed b by {largest:g} in one round, too much for {what}: lower")
        with pytest.raises(ValueError, match=words):
            check(sign * largest)
    for number in (np.inf, -np.inf, np.nan):
        with pytest.raises(ValueError, match="too much for"):
            check(number)


def test_the_sum_that_is_begun_has_the_weights_of_the_experiment() -> None:
    layout = Layout({TABLE: (4, 2)})
    for server, scale, uniform, holders in (
        ({}, 100.0, False, False),
        ({"weights": "uniform"}, 2.0, True, False),
        ({"absent_rows": "holders_only"}, 100.0, False, True),
    ):
        total = Summation(tiny.experiment(server=server), layout, [25, 75]).empty()
        assert (total.scale, total.uniform, total.holders_V is not None) == (scale, uniform, holders)
        assert total.mean() is None
