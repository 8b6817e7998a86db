"""A table of a paper beside our own results, as Markdown and as a picture."""

import io
import re
from collections.abc import Collection, Sequence
from textwrap import wrap

from dashboards.figures import UNIGRAM, Cell, Reproduction, Unit, common
from dashboards.paired import LEVEL, above_unigram, differs, order, paired_rows

REFERENCE = "FedAvg"  # costs are shown relative to this row's
PANELS = 3  # of a picture, side by side
_CODE_OR_TAG = re.compile(r"(`[^`]*`)|(<[a-z]+>)|<(?=[A-Za-z/!?])")


def markdown(made: Reproduction) -> str:
    """Return the table, notes on what was run, paired tests, and the order of the rows compared with the paper's."""
    columns = list(dict.fromkeys(cell.column for cell in made.cells))
    lines = [f"# {made.title}", "", *[f"{_visible(sentence)}  " for sentence in made.about]]
    if made.origin:
        commands = made.origin.commands
        lines.append(f"Command{'s' * (len(commands) > 1)}: {'; '.join(f'`{one}`' for one in commands)}  ")
    lines += [f"{sentence}  " for sentence in _versions(made)]
    lines += [f"{sentence}  " for sentence in _data(made)]
    lines.append(f"Rows of the table that were not run: {', '.join(made.missing) or 'none'}.  ")
    printed = {cell.column for cell in made.cells if cell.paper is not None}
    heads = [f"{column}: paper | ours | difference" if column in printed else f"{column}: ours" for column in columns]
    beside = [f"times {REFERENCE}"] if _reference(made) else []
    lines += ["", *_table(["", *heads, "s / round", "CPU s", *beside, "MB / client"], _rows(made, columns, printed))]
    lines += ["", _legend(made, bool(printed))]
    if said := above_unigram(made):
        lines += ["", said]
    lines += _tests(made, columns)
    if made.clients:
        names = list(dict.fromkeys(cell.column for cell in made.clients))
        lines += ["", "## Client by client (paper / ours)", ""]
        lines += _table(["", *names], [*_clients(made.clients, names)])
    for row, text in made.shown.items():
        title, *rest = text.strip().splitlines()
        lines += ["", f"## {row}: {title.lstrip('# ')}", *map(_visible, rest)]
    return "\n".join(lines) + "\n"


def _visible(text: str) -> str:
    """Return Markdown in which no word of a text is hidden as an HTML tag: ``<unk>`` as code, any other as it is."""
    return _CODE_OR_TAG.sub(lambda found: found[1] or (f"`{found[2]}`" if found[2] else "&lt;"), text)


def _versions(made: Reproduction) -> list[str]:
    """Return a sentence on the commits of the code that ran the rows; empty if none is known."""
    rows: dict[str, list[str]] = {}
    for row, commit in made.commits.items():
        rows.setdefault(commit, []).append(row)
    if not rows:
        return []
    whole = len(rows) == 1 and set(made.commits) >= {cell.row for cell in made.cells if cell.seeds}
    named = [commit if whole else f"{commit} ({', '.join(of)})" for commit, of in rows.items()]
    return [f"Code: {'; '.join(named)}."]


def _data(made: Reproduction) -> list[str]:
    """Return a sentence on the rows of different data; empty if none are known."""
    rows: dict[str, list[str]] = {}
    for row, digest in made.data.items():
        rows.setdefault(common(digest), []).append(row)
    if len(rows) < 2:
        return []
    named = "; ".join(f"{', '.join(of)} ({digest})" for digest, of in rows.items())
    return [f"ROWS OF DIFFERENT DATA, or of data that another version read otherwise, are not compared: {named}."]


def _tests(made: Reproduction, columns: Sequence[str]) -> list[str]:
    """Return the paired differences, and the pairs of rows whose order is not the paper's."""
    lines, several = [], made.seeds > 1
    if pairs := paired_rows(made, columns):
        heads = [f"{column} | p" if several else column for column in columns]
        lines += ["", "## Paired differences", "", *_table(["", *heads], pairs), ""]
        if several:
            lines.append(
                "The first row less the second, within each seed: mean ± standard error. p: two-sided paired t test "
                f"over {_counted(made)}, not corrected for the number of pairs: by chance alone one in twenty comes "
                f"out below {LEVEL}. **Bold**: p < {LEVEL}."
            )
        else:
            lines.append("The first row less the second. One seed: no test is possible.")
    if orders := [sentences for column in columns if (sentences := order(made, column))]:
        lines += ["", "## Order of the rows, against the paper's"]
        for sentences in orders:
            lines += ["", *sentences]
    return lines


def _legend(made: Reproduction, printed: bool) -> str:
    units: dict[Unit, list[str]] = {}
    for cell in made.cells:
        units.setdefault(cell.unit, []).append(cell.column)
    said = [_said(one, "" if len(units) == 1 else f" ({', '.join(dict.fromkeys(c))})") for one, c in units.items()]
    relative = any(cell.unit.relative for cell in made.cells if cell.paper is not None)
    noise = f"{made.noise:g}% of it" if relative else f"{made.noise:g} points"
    interval = ", and half the 95 % confidence interval of ours" if made.seeds > 1 else ""
    bold = f"**Bold** differences are larger than the paper's own noise ({noise}){interval}. "
    ours = "mean ± standard deviation over seeds" if made.seeds > 1 else "one seed, so that no spread is known"
    ours += "; without ±: of one seed" if made.seeds > made.fewest_seeds == 1 else ""
    counted = any(cell.row.startswith(UNIGRAM) for cell in made.cells)
    unigram = "unigram: the smoothed word counts of all train texts, no context and no training. " if counted else ""
    return (
        f"{'; '.join(said)}; ours: {ours}. {bold if printed else ''}{unigram}s / round: wall time of training, with "
        "whatever else the machine did; CPU s: of all clients' local updates in a round, together; MB / client: sent "
        "and received by a client in a round."
    )


def _counted(made: Reproduction) -> str:
    """Return ``3 seeds``, or of rows with different numbers of seeds ``the seeds that both have (at most 3)``."""
    if made.fewest_seeds == made.seeds:
        return f"{made.seeds} seeds"
    return f"the seeds that both have (at most {made.seeds})"


def _said(one: Unit, of: str) -> str:
    name = {"%": "Percent", "% leaked": "Percent leaked", "perplexity": "Perplexity", "rounds": "Rounds"}.get(one.name)
    name = name or "MB of all clients"
    return f"{name}{of}" + (", less is better" if one.less else "")


def _reference(made: Reproduction) -> float | None:
    """Return the CPU seconds of the reference row; None if there are none."""
    spent = made.costs.get(REFERENCE)
    return spent.cpu_seconds if spent else None


def _rows(made: Reproduction, columns: Sequence[str], printed: Collection[str]) -> list[list[str]]:
    found, reference = {(cell.row, cell.column): cell for cell in made.cells}, _reference(made)
    rows = []
    for row in dict.fromkeys(cell.row for cell in made.cells):
        texts = [row]
        for column in columns:
            cell = found[row, column]
            ours = _ours(cell) + (f" ({len(cell.seeds)} seeds)" if 1 < len(cell.seeds) < made.seeds else "")
            beside = f"{_number(cell.paper)} | {ours} | {_apart(made, cell)}"
            texts.append(beside if column in printed else ours)
        spent = made.costs.get(row)
        cpu = spent.cpu_seconds if spent else None
        texts += [_cost(spent.seconds if spent else None), _cost(cpu)]
        if reference:
            texts.append(_cost(None if cpu is None else cpu / reference, 2))
        texts.append(_cost(spent.bytes_per_client / 1e6 if spent else None))
        rows.append(texts)
    return rows


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


def _cost(value: float | None, decimals: int = 1) -> str:
    """Format a cost with a number of decimals, or two significant digits if it is smaller than 1."""
    if value is None or value == 0 or abs(value) >= 1:
        return "" if value is None else _number(value) if decimals == 1 else f"{value:.{decimals}f}"
    rounded = float(f"{value:.2g}")
    return f"{rounded:.{decimals}f}" if rounded == round(rounded, decimals) else f"{rounded:.2g}"


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "") + _number(value)


def _ours(cell: Cell) -> str:
    """Return our value, with the number of seeds it is the mean of if some have none."""
    if cell.ours is None:
        return cell.unit.none if cell.seeds else ""
    spread = "" if cell.ours.deviation is None else f" ± {_number(cell.ours.deviation)}"
    return f"{_number(cell.ours.mean)}{spread}" + ("" if cell.whole else f" ({cell.ours.count} of {len(cell.seeds)})")


def _apart(made: Reproduction, cell: Cell) -> str:
    if cell.paper is None or cell.ours is None or not cell.whole:
        return ""
    text = _signed(cell.ours.mean - cell.paper)
    return f"**{text}**" if differs(cell, made.noise_of(cell)) else text


def picture(made: Reproduction) -> bytes:
    """Draw a panel for each column: the paper's values as hollow marks, ours filled, with standard deviations.

    Returns:
        The picture, a PNG.
    """
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
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format="png")
    return drawn.getvalue()
