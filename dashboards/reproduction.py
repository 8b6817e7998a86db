"""A paper's table beside ours: Markdown, CSV and a picture."""

import csv
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from textwrap import wrap

from dashboards.figures import Cell, Reproduction, Unit, difference, differs, order

REFERENCE = "FedAvg"  # whose cost the others' stand beside
PANELS = 3  # of a picture, side by side


def markdown(made: Reproduction) -> str:
    columns = list(dict.fromkeys(cell.column for cell in made.cells))
    lines = [f"# {made.title}", "", *[f"{sentence}  " for sentence in made.about], ""]
    printed = {cell.column for cell in made.cells if cell.paper is not None}
    heads = [f"{column}: paper | ours | difference" if column in printed else f"{column}: ours" for column in columns]
    beside = [f"times {REFERENCE}"] if _reference(made) else []
    lines += _table(["", *heads, "s / round", "CPU s", *beside, "MB / client"], _rows(made, columns, printed))
    lines += ["", _legend(made, bool(printed))]
    orders = [order(made, column) for column in columns]
    lines += ["\n" + "\n".join(sentences) for sentences in orders if sentences]
    if made.compare:
        lines += ["", "## Seed by seed", ""]
        lines += _table(["", *columns], _compared(made, columns))
        lines += [
            "",
            "The first row less the second: mean over the seeds of the difference ± its standard error. **Bold**: more "
            "than chance, 19 times in 20; of a single seed that cannot be told.",
        ]
    if made.clients:
        names = list(dict.fromkeys(cell.column for cell in made.clients))
        lines += ["", "## Client by client (paper / ours)", ""]
        lines += _table(["", *names], [*_clients(made.clients, names)])
    for row, text in made.shown.items():
        title, *rest = text.strip().splitlines()
        lines += ["", f"## {row}: {title.lstrip('# ')}", *rest]
    return "\n".join(lines) + "\n"


def _legend(made: Reproduction, printed: bool) -> str:
    units: dict[Unit, list[str]] = {}
    for cell in made.cells:
        units.setdefault(cell.unit, []).append(cell.column)
    said = [_said(one, "" if len(units) == 1 else f" ({', '.join(dict.fromkeys(c))})") for one, c in units.items()]
    relative = any(cell.unit.relative for cell in made.cells if cell.paper is not None)
    noise = f"{made.noise:g}% of it" if relative else f"{made.noise:g} points"
    bold = (
        f"**Bold** differences are larger than the paper's own noise ({noise}) and what the mean of so few seeds is "
        "off by, 19 times in 20. "
    )
    return (
        f"{'; '.join(said)}; ours: mean ± standard deviation over seeds. {bold if printed else ''}s / round: wall time "
        "of training, with whatever else the machine did; CPU s: of all clients' turns in a round, together."
    )


def _said(one: Unit, of: str) -> str:
    name = {"%": "Percent", "perplexity": "Perplexity", "rounds": "Rounds", "MB": "MB of all clients"}[one.name]
    return f"{name}{of}" + (", less is better" if one.less else "")


def _reference(made: Reproduction) -> float | None:
    """The CPU seconds that others are compared with; None where there are none."""
    spent = made.costs.get(REFERENCE)
    return spent.cpu_seconds if spent else None


def _rows(made: Reproduction, columns: Sequence[str], printed: Collection[str]) -> list[list[str]]:
    found, reference = {(cell.row, cell.column): cell for cell in made.cells}, _reference(made)
    rows = []
    for row in dict.fromkeys(cell.row for cell in made.cells):
        texts = [row]
        for column in columns:
            cell = found[row, column]
            beside = f"{_number(cell.paper)} | {_ours(cell)} | {_apart(made, cell)}"
            texts.append(beside if column in printed else _ours(cell))
        spent = made.costs.get(row)
        cpu = spent.cpu_seconds if spent else None
        texts += [_number(spent.seconds if spent else None), _number(cpu)]
        if reference:
            texts.append("" if cpu is None else f"{cpu / reference:.2f}")
        texts.append(_number(spent.bytes_per_client / 1e6 if spent else None))
        rows.append(texts)
    return rows


def _compared(made: Reproduction, columns: Sequence[str]) -> list[list[str]]:
    found = {(cell.row, cell.column): cell for cell in made.cells}
    return [
        [f"{one} - {other}", *(_between(found[one, column], found[other, column]) for column in columns)]
        for one, other in made.compare
    ]


def _between(one: Cell, other: Cell) -> str:
    apart = difference(one, other)
    if apart is None:
        return one.unit.none
    text = _signed(apart.mean) + ("" if apart.error is None else f" ± {_number(apart.error)}")
    return f"**{text}**" if apart.clear else text


def _clients(cells: Sequence[Cell], names: Sequence[str]) -> list[list[str]]:
    found = {(cell.row, cell.column): cell for cell in cells}
    rows = []
    for row in dict.fromkeys(cell.row for cell in cells):
        pairs = [found.get((row, name)) for name in names]
        rows.append([row, *(f"{_number(pair.paper)} / {_ours(pair)}" if pair else "" for pair in pairs)])
    return rows


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    width = sum(head.count("|") + 1 for head in heads)
    return [f"| {' | '.join(heads)} |", "|" + " --- |" * width, *(f"| {' | '.join(texts)} |" for texts in rows)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if abs(value) < 1e6 else f"{value:.1e}"


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "") + _number(value)


def _ours(cell: Cell) -> str:
    """Our figure; of seeds some of which have none, how many it is of."""
    if cell.ours is None:
        return cell.unit.none if cell.seeds else ""
    spread = "" if cell.ours.deviation is None else f" ± {_number(cell.ours.deviation)}"
    return f"{_number(cell.ours.mean)}{spread}" + ("" if cell.whole else f" ({cell.ours.count} of {len(cell.seeds)})")


def _apart(made: Reproduction, cell: Cell) -> str:
    if cell.paper is None or cell.ours is None or not cell.whole:
        return ""
    text = _signed(cell.ours.mean - cell.paper)
    return f"**{text}**" if differs(cell, made.noise_of(cell)) else text


def table_csv(made: Reproduction) -> str:
    """All cells: ``part, row, column, unit, paper, ours, deviation, seeds``, the figure of each seed, - for none, and
    what was run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["part", "row", "column", "unit", "paper", "ours", "deviation", "seeds", "values", "about"])
    for part, cells in (("mean", made.cells), ("client", made.clients)):
        for cell in cells:
            ours = cell.ours
            figures = (ours.mean, ours.deviation) if ours else (None, None)
            values = " ".join("-" if value is None else f"{value:.4f}" for value in cell.seeds)
            named = (part, cell.row, cell.column, cell.unit.name, cell.paper)
            writer.writerow([*named, *figures, len(cell.seeds), values, " ".join(made.about)])
    return text.getvalue()


def picture(made: Reproduction, path: Path) -> None:
    """The paper's figures as hollow marks and ours as filled ones with their standard deviation, a panel a column."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(cell.column for cell in made.cells))
    rows = list(dict.fromkeys(cell.row for cell in made.cells))
    wide = min(len(columns), PANELS)
    high = -(-len(columns) // wide)
    figure = Figure(figsize=(2.6 + 3.2 * wide, 0.9 + high * (0.7 + 0.32 * len(rows))), layout="constrained")
    FigureCanvasAgg(figure)
    every = figure.subplots(high, wide, sharey=True, squeeze=False).flatten().tolist()
    panels = every[: len(columns)]
    for panel in every[len(columns) :]:
        panel.set_axis_off()
    for panel, column in zip(panels, columns, strict=True):
        places = {row: len(rows) - place for place, row in enumerate(rows)}
        cells = [cell for cell in made.cells if cell.column == column]
        theirs = [(cell.paper, places[cell.row]) for cell in cells if cell.paper is not None]
        ours = [(cell.ours, places[cell.row]) for cell in cells if cell.ours is not None]
        panel.plot(*zip(*theirs, strict=True), "o", mfc="none", mec="#444", label="paper") if theirs else None
        if ours:
            means, at = [value.mean for value, _ in ours], [place for _, place in ours]
            spread = [value.deviation or 0.0 for value, _ in ours]
            panel.errorbar(means, at, xerr=spread, fmt="s", color="#1f6fb4", ms=4, capsize=2, label="ours")
        for cell in cells:
            if cell.seeds and cell.ours is None:
                where = {"transform": panel.get_yaxis_transform(), "va": "center", "fontsize": 7, "color": "#777"}
                panel.text(0.03, places[cell.row], cell.unit.none, **where)
        shown = cells[0].unit.name
        label = column if shown == column else f"{column}, {shown}"
        panel.set(yticks=list(places.values()), yticklabels=rows, xlabel=label, ylim=(0.4, len(rows) + 0.6))
        panel.grid(axis="x", color="#ddd")
        panel.spines[["top", "right"]].set_visible(False)
    fullest = max(reversed(panels), key=lambda panel: len(panel.get_legend_handles_labels()[0]))
    if fullest.get_legend_handles_labels()[0]:
        fullest.legend(frameon=False, fontsize=8)
    figure.suptitle("\n".join([made.title, *(wrap(made.about[0], 60 + 30 * wide))]), fontsize=8)
    figure.savefig(path, dpi=150)
