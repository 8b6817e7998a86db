"""Dot plots: a line for each row, with mean, deviation and single values."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.groups import Spread
from dashboards.report.measures import Measure
from dashboards.report.svg import SERIES, WIDTH, Ids, Scale, drawing, element, mark, number, scale, text, x_axis
from dashboards.table import spread

BOLD = 0.87  # a bold letter takes more room
STEP, TOP, BOTTOM, VALUE = 32, 8, 40, 96  # pixels: of a row, above, below, and beside for the value as text
TICK = 24  # pixels beside the first tick, for half of its number


@dataclass(frozen=True)
class Dot:
    """One line of a dot plot, in the unit of the records.

    Args:
        label: Its name.
        found: Mean and deviation.
        values: The single values.
        strong: Whether it is the best.
        series: Number of its colour and mark.
    """

    label: str
    found: Spread
    values: Sequence[float]
    strong: bool = False
    series: int = 0


def dots(ids: Ids, of: Measure, lines: Sequence[Dot], title: str) -> str:
    """Return a dot plot.

    Args:
        ids: Makes its ids.
        of: What is measured.
        lines: Its lines, from above.
        title: Its title.
    """
    ends = [value for one in lines for value in (*one.values, *_ends(one.found))]
    on = scale([of.unit.factor * value for value in ends], TICK, WIDTH - VALUE)
    high = TOP + STEP * len(lines)
    body = [x_axis(on, high + 2, of.head, of.tick, TOP)]
    for place, one in enumerate(lines):
        y = TOP + STEP * place + 22
        kind = "strong" if one.strong else ""
        body.append(text(4, y - 10, one.label, kind=kind, room=(WIDTH - 8) * (BOLD if one.strong else 1)))
        body.append(_line(on, of, one, y))
        body.append(text(WIDTH, y + 4, spread(one.found, of.write) + (" *" if one.strong else ""), "end", kind))
    first = next((one for one in lines if one.strong), None)
    desc = f"Means of {len(lines)} rows, with standard deviations as bars and single seeds as small lines."
    desc += f" Best: {first.label}, {spread(first.found, of.write)}." if first else ""
    return drawing(ids, (WIDTH, high + BOTTOM), title, desc, body)


def _ends(found: Spread) -> tuple[float, float]:
    apart = found.deviation or 0.0
    return found.mean - apart, found.mean + apart


def _line(on: Scale, of: Measure, one: Dot, y: float) -> str:
    """Return the marks of one line: bar, single values, mean."""
    low, high = (on(of.unit.factor * value) for value in _ends(one.found))
    made = [element("path", d=f"M{number(on.start)} {number(y)}H{number(on.end)}", class_="grid")]
    if one.found.deviation:
        caps = "".join(f"M{number(end)} {number(y - 4)}v8" for end in (low, high))
        bar, kind = f"M{number(low)} {number(y)}H{number(high)}{caps}", one.series % SERIES
        made.append(element("path", d=bar, class_=f"s{kind} line"))
    if len(one.values) > 1:
        ticks = "".join(f"M{number(on(of.unit.factor * value))} {number(y - 3)}v6" for value in one.values)
        made.append(element("path", d=ticks, class_="seed"))
    made.append(mark(on(of.unit.factor * one.found.mean), y, one.series, hollow=not one.strong))
    return "".join(made)
