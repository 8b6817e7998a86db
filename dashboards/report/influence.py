"""Plots of the influence of a swept key: a metric against the key's values."""

from collections.abc import Sequence

from dashboards.groups import Spread
from dashboards.report.collect import Sweep
from dashboards.report.contents import points, pooled
from dashboards.report.dots import Dot, dots
from dashboards.report.measures import Measure
from dashboards.report.svg import WIDTH, Ids, Scale, drawing, element, mark, number, path, scale, x_axis, y_axis

HIGH, LEFT, RIGHT, TOP, BOTTOM = 240, 44, 14, 26, 38


def influence(ids: Ids, sweep: Sweep, key: str, of: Measure) -> str:
    """Return the plot of a key: a line over numbers, or a dot plot of other values.

    Args:
        ids: Makes its ids.
        sweep: The sweep.
        key: The key.
        of: The metric.
    """
    made = []
    for told, rows in points(sweep, key).items():
        if found := pooled(rows, of.name):
            values = [one.mean for row in rows if (one := row.spread(of.name))]
            made.append((told, rows[0].point[key], found, values))
    title = f"{of.name} by {key}"
    numbers = [float(one) for _, one, _, _ in made if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < len(made):
        return dots(ids, of, [Dot(told, found, values) for told, _, found, values in made], title)
    on = scale(numbers, LEFT + 6, WIDTH - RIGHT - 6)
    joined = "grid" in sweep.experiment.space.get(key, {})  # a line between values drawn at random would show noise
    return _line(ids, of, key, title, on, numbers, [found for _, _, found, _ in made], [one[3] for one in made], joined)


def _line(
    ids: Ids,
    of: Measure,
    key: str,
    title: str,
    on: Scale,
    numbers: Sequence[float],
    means: Sequence[Spread],
    single: Sequence[Sequence[float]],
    joined: bool,
) -> str:
    factor = of.unit.factor
    ends = [factor * (one.mean + side * (one.deviation or 0.0)) for one in means for side in (-1, 1)]
    up = scale([*ends, *(factor * value for values in single for value in values)], HIGH - BOTTOM, TOP, log=False)
    label = f"{key}, logarithmic" if on.log else key
    body = [
        y_axis(up, LEFT, of.head, of.tick, WIDTH - RIGHT),
        x_axis(on, HIGH - BOTTOM, label, lambda value: f"{value:.10g}", TOP),
    ]
    if joined:
        places = [(on(x), up(factor * one.mean)) for x, one in zip(numbers, means, strict=True)]
        body.append(element("path", d=path(places), class_="s0 line"))
    for x, one, values in zip(numbers, means, single, strict=True):
        body += [element("circle", cx=on(x), cy=up(factor * value), r=2.5, class_="seed dot") for value in values]
        if one.deviation:
            low, high = (up(factor * (one.mean + side * one.deviation)) for side in (-1, 1))
            at = number(on(x))
            body.append(element("path", d=f"M{at} {number(low)}V{number(high)}", class_="s0 line"))
        body.append(mark(on(x), up(factor * one.mean), 0, 3.6))
    said = ", ".join(f"{x:g}: {of.write(one.mean)}" for x, one in zip(numbers, means, strict=True))
    return drawing(ids, (WIDTH, HIGH), title, f"Means of all trials with each value. {said}.", body)
