"""The plots of reports: scales, curves, heat maps, Pareto fronts, names."""

import re
from collections.abc import Sequence

import pytest

from dashboards.groups import Spread
from dashboards.report.collect import Row, Sample
from dashboards.report.curves import Line, curves, legend
from dashboards.report.dots import Dot, dots
from dashboards.report.heat import heat
from dashboards.report.measures import measure
from dashboards.report.svg import SERIES, Ids, Scale, scale, text, wrapped
from dashboards.report.tradeoff import Point, front
from dashboards.trial import short
from tests import ROOT
from tests.loops import nonempty


def row(name: str, values: Sequence[float] = ()) -> Row:
    samples = [Sample(name, seed, "finished", (), {"Ag": value}) for seed, value in enumerate(values)]
    return Row(name, name, name, False, {}, {}, tuple(samples))


def test_the_front_is_what_no_other_point_beats() -> None:
    places = {"a": (1, 5), "b": (2, 7), "c": (3, 6), "d": (2, 5), "e": (4, 7), "f": (float("inf"), 9), "g": (1, 5)}
    found = [Point(row(name), x, y) for name, (x, y) in places.items()]
    assert [one.row.id for one in front(found, measure("Ag"))] == ["a", "g", "b", "f"]
    less = measure("loss")
    assert {one.row.id for one in front(found, less)} == {"a", "g"}


def test_scales_have_round_ticks_and_keep_values_inside() -> None:
    assert Scale(0, 10, 0, 100).ticks() == [0, 2, 4, 6, 8, 10]
    assert Scale(0.52, 0.91, 0, 100).ticks() == [0.6, 0.7, 0.8, 0.9]
    assert Scale(1, 1000, 0, 300, log=True).ticks() == [1, 10, 100, 1000]
    assert Scale(1, 1000, 0, 300, log=True)(10) == pytest.approx(100)
    assert Scale(10, 20, 100, 0)(15) == 50
    for values in ([3.0], [0.0, 0.0], [-1.0, 5.0], [1e-9, 2e-9], [1.0, 1e6]):
        on = scale(values, 10, 110)
        assert all(10 < on(value) < 110 for value in nonempty(values))
        assert len(on.ticks()) >= 1
        assert on.log == (values == [1.0, 1e6])


def test_values_that_differ_by_rounding_are_one_value_on_a_scale() -> None:
    on = scale([0.8333333333333334, 0.8333333333333335], 10, 110)
    assert on(0.8333333333333334) == pytest.approx(60)
    assert len(set(on.ticks())) == len(on.ticks())


def test_ticks_are_written_apart() -> None:
    assert [measure("CPU time").tick(value) for value in (0.02, 0.04, 90)] == ["0.02 s", "0.04 s", "1 min 30 s"]
    assert [measure("Ag").tick(value) for value in (82.5, -5.0)] == ["82.5", "−5"]
    assert measure("bytes_total").tick(2.5e6) == "2.5 MB"


def test_deviations_have_the_colour_of_their_mark_in_every_row_of_a_dot_plot() -> None:
    """Colours begin again after the last one."""
    lines = [Dot(f"m{one}", Spread(0.5, 0.1, 2), [0.4, 0.6], series=one) for one in range(2 * SERIES)]
    drawn = dots(Ids(), measure("Ag"), lines, "Ag")
    assert re.findall(r'class="(s\d+) line"', drawn) == [f"s{one % SERIES}" for one in range(2 * SERIES)]
    styles = (ROOT / "dashboards" / "report" / "report.css").read_text()
    assert all(f".{name} {{" in styles for name in nonempty(set(re.findall(r'class="(s\d+)', drawn))))


def test_bands_are_one_deviation_around_the_mean() -> None:
    line = Line("a", {1: Spread(0.5, 0.1, 2), 2: Spread(0.7, 0.1, 2)}, 0)
    drawn = curves(Ids(), measure("Ag"), [line], "Ag by round")
    (band,) = re.findall(r'd="(\S[^"]*)" class="s0 band"', drawn)
    (middle,) = re.findall(r'd="(\S[^"]*)" class="s0 line"', drawn)
    heights = [[float(y) for y in re.findall(r" ([\d.]+)", one)] for one in (band, middle)]
    assert len(heights[0]) == 4
    upper, lower = heights[0][:2], heights[0][:1:-1]
    assert [(a + b) / 2 for a, b in zip(upper, lower, strict=True)] == pytest.approx(heights[1], abs=0.11)
    alone = Line("a", {1: Spread(0.5, None, 1), 2: Spread(0.7, None, 1)}, 0)
    assert "band" not in curves(Ids(), measure("Ag"), [alone], "Ag by round")
    assert "at the end: a 70.0." in drawn


def test_heat_maps_outline_the_best_of_each_client() -> None:
    values = {("c", "a"): Spread(0.5, None, 1), ("c", "b"): Spread(0.9, None, 1), ("d", "a"): Spread(0.4, None, 1)}
    drawn = heat(Ids(), measure("Ap"), ["c", "d"], ["a", "b"], values, "Ap")
    assert re.findall(r'class="(best[^"]*)"', drawn) == ["best over", "best"]
    assert re.search(r'class="over strong"[^>]*>90.0<', drawn)
    assert re.findall(r'class="heat" fill-opacity="([\d.]+)"', drawn)[:3] == ["0.25", "1.00", "0.06"]


def test_long_names_are_shortened_in_the_middle_and_wrapped_in_legends() -> None:
    assert short("abcdefghij", 7) == "abc…hij"
    assert short("abc", 3) == "abc"
    assert wrapped("one two three", 60) == ["one two", "three"]
    assert wrapped("one", 60) == ["one"]
    assert "<title>" in text(0, 0, "x" * 50, room=100)
    assert "<title>" not in text(0, 0, "x" * 50)
    names = ["a" * 30 + " " + "b" * 30]
    drawn = legend(Ids(), names, True, "Names of the lines")
    assert drawn.count("<text") == 2
