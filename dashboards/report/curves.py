"""Learning curves: a line for each method, with a band of one standard deviation over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.groups import Spread
from dashboards.report.measures import Measure
from dashboards.report.svg import (
    DASHES,
    SERIES,
    WIDTH,
    Ids,
    Scale,
    drawing,
    element,
    mark,
    path,
    scale,
    text,
    wrapped,
    x_axis,
    y_axis,
)

HIGH, LEFT, RIGHT, TOP, BOTTOM = 250, 44, 8, 26, 38
MARKS = 5  # marks of a line


@dataclass(frozen=True)
class Line:
    """A line: its name, its values by x, and the number of its colour, dash and mark."""

    label: str
    values: Mapping[int, Spread]
    series: int


def curves(ids: Ids, of: Measure, lines: Sequence[Line], title: str) -> str:
    """Return the curves of a metric over rounds.

    Args:
        ids: Makes its ids.
        of: The metric.
        lines: The lines.
        title: Its title.
    """
    factor = of.unit.factor
    every = [(round_, one) for line in lines for round_, one in line.values.items()]
    across = scale([float(round_) for round_, _ in every], LEFT, WIDTH - RIGHT, log=False)
    ends = [factor * (one.mean + side * (one.deviation or 0.0)) for _, one in every for side in (-1, 1)]
    up = scale(ends, HIGH - BOTTOM, TOP, log=False)
    body = [x_axis(across, HIGH - BOTTOM, "round", _whole, TOP), y_axis(up, LEFT, of.head, of.tick, WIDTH - RIGHT)]
    body += [_band(across, up, factor, line) for line in lines]
    body += [_line(across, up, factor, line) for line in lines]
    ended = [f"{line.label} {of.write(line.values[max(line.values)].mean)}" for line in lines]
    desc = f"{of.name} over {max(round_ for round_, _ in every)} rounds; at the end: {', '.join(ended)}."
    return drawing(ids, (WIDTH, HIGH), title, desc, body)


def _whole(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else ""


def _band(across: Scale, up: Scale, factor: float, line: Line) -> str:
    rounds = sorted(line.values)
    if not any(line.values[one].deviation for one in rounds):
        return ""
    sides = [
        [
            (across(one), up(factor * (line.values[one].mean + side * (line.values[one].deviation or 0.0))))
            for one in rounds
        ]
        for side in (1, -1)
    ]
    return element("path", d=f"{path([*sides[0], *reversed(sides[1])])}z", class_=f"s{line.series % SERIES} band")


def _line(across: Scale, up: Scale, factor: float, line: Line) -> str:
    points = [(across(one), up(factor * line.values[one].mean)) for one in sorted(line.values)]
    dash, kind = DASHES[line.series % SERIES], line.series % SERIES
    made = [element("path", d=path(points), class_=f"s{kind} line", stroke_dasharray=dash)]
    every = max(1, len(points) // MARKS)
    made += [mark(x, y, kind, 3.2, title=line.label) for x, y in (*points[:-1:every], points[-1])]
    return "".join(made)


def legend(ids: Ids, labels: Sequence[str], dashed: bool, title: str, several: Sequence[int] = ()) -> str:
    """Return the names of series beside their marks.

    Args:
        ids: Makes its ids.
        labels: Names of the series.
        dashed: Whether they are lines.
        title: Its title.
        several: Numbers of the series; empty: as they come.
    """
    body, y = [], -8
    for place, label in enumerate(labels):
        kind, y = (several[place] if several else place) % SERIES, y + 20
        if dashed:
            body.append(element("path", d=f"M4 {y}H36", class_=f"s{kind} line", stroke_dasharray=DASHES[kind]))
        first, *more = wrapped(label, WIDTH - 44)
        body += [mark(20, y, kind, 3.6), text(44, y + 4, first)]
        for line in more:
            y += 14
            body.append(text(44, y + 4, line, room=WIDTH - 44))
    desc = f"{len(labels)} names: {'; '.join(labels)}."
    return drawing(ids, (WIDTH, y + 12), title, desc, body)
