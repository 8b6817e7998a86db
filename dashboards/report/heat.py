"""Heat map: clients by methods."""

from collections.abc import Collection, Mapping, Sequence

from dashboards.groups import Spread
from dashboards.report.measures import Measure, equal
from dashboards.report.svg import LETTER, Ids, drawing, element, number, text

NAME, CELL, STEP = 92, 46, 24  # pixels: of clients' names, and of cells
LONGEST, SLOPE = 200, 0.65  # pixels of a method's name above, which rises by this part of its length
MIDDLE, STRONG = 0.55, 0.7  # cells that are stronger than this have other text, in one colour scheme or in both


def heat(
    ids: Ids,
    of: Measure,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Mapping[tuple[str, str], Spread],
    title: str,
    partial: Collection[tuple[str, str]] = (),
) -> str:
    """Return a heat map.

    Args:
        ids: Makes its ids.
        of: The metric.
        rows: Names of its rows.
        columns: Names of its columns.
        values: Values by row and column, in the unit of the records.
        title: Its title.
        partial: The row and column of values that lack a seed: none of them is outlined as the best.
    """
    means = [one.mean for one in values.values()]
    low, high, whole = min(means), max(means), values.keys() - set(partial)
    room = min(LONGEST, LETTER * max(map(len, columns), default=0))
    above = 20 + SLOPE * room
    width, high_of_all = NAME + CELL * len(columns) + max(72, 0.8 * room), above + STEP * len(rows) + 28
    body = []
    for place, name in enumerate(columns):
        x = NAME + CELL * (place + 0.5)
        turned = f"rotate(-40 {number(x)} {number(above - 6)})"
        body.append(text(x, above - 6, name, room=LONGEST, transform=turned))
    for line, client in enumerate(rows):
        y = above + STEP * line
        body.append(text(NAME - 6, y + 16, client, "end", room=NAME - 8))
        known = [values[client, column].mean for column in columns if (client, column) in whole]
        best = (min if of.unit.less else max)(known) if known and len(columns) > 1 and of.ranked else None
        for place, column in enumerate(columns):
            if found := values.get((client, column)):
                share = (found.mean - low) / (high - low) if high > low else 0.5
                x = NAME + CELL * place
                first = best is not None and (client, column) in whole and equal(found.mean, best)
                body.append(_cell(x, y, of.write(found.mean), share, first))
    y = above + STEP * len(rows) + 8
    for place in range(5):
        body.append(_cell(NAME + 28 * place, y, "", place / 4, False, 28, 12))
    body.append(text(NAME - 6, y + 10, of.write(low), "end", "soft"))
    body.append(text(NAME + 28 * 5 + 6, y + 10, f"{of.write(high)} {of.unit.name}", kind="soft"))
    desc = f"{of.name} of {len(rows)} clients with {len(columns)} methods, from {of.write(low)} to {of.write(high)}"
    desc += f" {of.unit.name}." if of.unit.name else "."
    return drawing(ids, (max(width, NAME + 28 * 5 + 70), high_of_all), title, desc, body)


def _cell(x: float, y: float, said: str, share: float, best: bool, wide: float = CELL, high: float = STEP) -> str:
    """Return a cell, ``share`` of the way from the lowest to the highest value."""
    strength = f"{0.06 + 0.94 * share:.2f}"
    made = element("rect", x=x, y=y, width=wide - 1, height=high - 1, class_="heat", fill_opacity=strength)
    kind = "over" if share > STRONG else "middle" if share > MIDDLE else ""
    if best:
        made += element("rect", x=x + 1, y=y + 1, width=wide - 3, height=high - 3, class_=f"best {kind}".strip())
    if said:
        made += text(x + wide / 2 - 0.5, y + 16, said, "middle", f"{kind} {'strong' if best else ''}".strip())
    return made
