"""Trade-offs: utility against epsilon, leakage, bytes and time, with the Pareto front."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dashboards.pareto import rounded
from dashboards.report.collect import Row, Sweep
from dashboards.report.compare import measures
from dashboards.report.measures import COSTS, Measure, measure
from dashboards.report.svg import WIDTH, Ids, Scale, drawing, element, mark, path, scale, text, x_axis, y_axis
from fedtext.metrics import find

HIGH, LEFT, RIGHT, TOP, BOTTOM, SIDE = 300, 44, 14, 26, 40, 52  # SIDE: for points without a number
Sideways = Literal["", "nothing sent", "no guarantee"]
MOST = 4  # of a kind of axis


@dataclass(frozen=True)
class Point:
    """A row in two measures.

    Args:
        row: The row.
        x, y: Its values, in the units of the axes; ``x`` is infinite without a number.
        side: Why it has no number in x, which is an epsilon; empty if it has one.
        named: What stands beside its mark: the number of the row.
        whole: Whether every seed has both values: else their means are biased, or of different seeds.
    """

    row: Row
    x: float
    y: float
    side: Sideways = ""
    named: str = ""
    whole: bool = True


def axes(sweep: Sweep) -> tuple[list[Measure], list[Measure]]:
    """Return what can be on the horizontal axis, and on the vertical one: what differs between rows.

    Across are what is to be small: epsilon, leakage, bytes and time. Upwards are evaluations and leakage.
    """
    every = [one for one in measures(sweep) if one.ranked and _differs(sweep, one)]
    kinds = {one.name: known.kind for one in every if (known := find(one.name))}
    good = [one for one in every if kinds.get(one.name) == "evaluation"]
    good.sort(key=lambda one: one.name != sweep.metric)
    leaks = [one for one in every if kinds.get(one.name) == "attack"][:MOST]
    epsilon = [measure("epsilon")] if "epsilon" in sweep.names() else []
    spent = [one for name in ("bytes_total",) if _differs(sweep, one := measure(name))]
    spent += [one for name in ("CPU time",) if _differs(sweep, one := COSTS[name])]
    return [*epsilon, *leaks, *spent], [*good[:MOST], *leaks]


def _differs(sweep: Sweep, of: Measure) -> bool:
    return len({found.mean for row in sweep.rows if (found := row.spread(of.name))}) > 1


def points(sweep: Sweep, across: Measure, up: Measure) -> list[Point]:
    """Return the rows that have both measures, as means over seeds.

    Args:
        sweep: The sweep.
        across, up: The measures.
    """
    made = []
    for place, row in enumerate(sweep.rows, 1):
        x, y = row.spread(across.name), row.spread(up.name)
        if y is None:
            continue
        named, high, whole = str(place), rounded(up.unit.factor * y.mean), row.complete(up.name)
        if x is not None:
            whole = whole and row.complete(across.name)
            made.append(Point(row, rounded(across.unit.factor * x.mean), high, "", named, whole))
        elif across.name == "epsilon" and row.experiment is not None:
            method = row.experiment.method
            sent = method.shares or method.pooled
            side: Sideways = "no guarantee" if sent else "nothing sent"
            made.append(Point(row, math.inf if sent else -math.inf, high, side, named, whole))
    return made


def front(found: Sequence[Point], up: Measure) -> list[Point]:
    """Return the points that no other one is better than in both measures, from left to right. Less is better in x.

    Points that are not ``whole`` are no candidates, and beat no other one.
    """

    def beaten(one: Point, by: Point) -> bool:
        no_worse = by.x <= one.x and not up.better(one.y, by.y)
        return no_worse and (by.x < one.x or up.better(by.y, one.y))

    whole = [one for one in found if one.whole]
    kept = [one for one in whole if not any(beaten(one, by) for by in whole)]
    return sorted(kept, key=lambda one: (one.x, one.y))


def tradeoff(ids: Ids, found: Sequence[Point], across: Measure, up: Measure, series: dict[str, int]) -> str:
    """Return a scatter plot with the Pareto front.

    Args:
        ids: Makes its ids.
        found: The points, of which at least one has a number in both measures.
        across, up: The measures.
        series: Number of the colour and mark of each method.
    """
    inner = [one for one in found if not one.side]
    left = LEFT + (SIDE if any(one.side == "nothing sent" for one in found) else 0)
    right = WIDTH - RIGHT - (SIDE if any(one.side == "no guarantee" for one in found) else 0)
    on = scale([one.x for one in inner], left + 8, right - 8)
    height = scale([one.y for one in found], HIGH - BOTTOM, TOP)
    head = f"{across.head}, logarithmic" if on.log else across.head
    best = front(found, up)
    body = [y_axis(height, LEFT, up.head, up.tick, WIDTH - RIGHT), x_axis(on, HIGH - BOTTOM, head, across.tick, TOP)]
    body += _sides(found, left, right)
    at = {id(one): (_place(on, one, left, right), height(one.y)) for one in found}
    if len(best) > 1:
        body.append(element("path", d=path([at[id(one)] for one in best]), class_="front"))
    taken: list[tuple[float, float]] = []
    for one in found:
        x, y = at[id(one)]
        title = f"{one.row.name}: {one.side or across.shown(one.x)}, {up.shown(one.y)}"
        title += "" if one.whole else ", not of every seed"
        body.append(mark(x, y, series[one.row.method], hollow=one not in best, title=title))
        body.append(_named(x, y, one.named, taken))
    names = ", ".join(f"{one.named} {one.row.name}" for one in best) or "none"
    desc = f"{len(found)} rows by {across.name} and {up.name}. On the Pareto front: {names}."
    return drawing(ids, (WIDTH, HIGH), f"{up.name} against {across.name}", desc, body)


def _place(on: Scale, one: Point, left: float, right: float) -> float:
    if not one.side:
        return on(one.x)
    return left - SIDE / 2 if one.side == "nothing sent" else right + SIDE / 2


def _sides(found: Sequence[Point], left: float, right: float) -> list[str]:
    """Return the borders and names of the places of points without a number."""
    made = []
    for side, border, middle in (
        ("nothing sent", left, left - SIDE / 2),
        ("no guarantee", right, right + SIDE / 2),
    ):
        if any(one.side == side for one in found):
            first, second = side.split()
            made.append(element("path", d=f"M{border} {TOP}V{HIGH - BOTTOM}", class_="border"))
            made.append(text(middle, HIGH - BOTTOM + 14, first, "middle", "soft"))
            made.append(text(middle, HIGH - BOTTOM + 26, second, "middle", "soft"))
    return made


def _named(x: float, y: float, name: str, taken: list[tuple[float, float]]) -> str:
    """Return the name of a point at the first of some places around it that no other name has; remember the place."""
    around = [(8, 4), (-8, 4), (0, -9), (0, 18), (8, -8), (-8, -8), (8, 16), (-8, 16)]
    free = [
        (x + dx, y + dy)
        for dx, dy in around
        if not any(abs(x + dx - a) < 12 and abs(y + dy - b) < 10 for a, b in taken)
    ]
    at = free[0] if free else (x + 8, y + 4)
    taken.append(at)
    anchor = "start" if at[0] > x else "end" if at[0] < x else "middle"
    return text(at[0], at[1], name, anchor, "soft name")
