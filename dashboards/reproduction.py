"""A paper's table beside ours: Markdown, CSV and a picture."""

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from textwrap import wrap

from dashboards.groups import Spread
from dashboards.trial import Outcome

REFERENCE = "FedAvg"  # whose cost the others' stand beside


@dataclass(frozen=True)
class Cell:
    """One figure, in percent, and ``seeds``: ours seed by seed, none where nothing was run or nothing is read."""

    row: str
    column: str
    paper: float | None
    seeds: Sequence[float]

    @property
    def ours(self) -> Spread | None:
        return Spread.of(self.seeds) if self.seeds else None


@dataclass(frozen=True)
class Cost:
    """Means over the rounds of all seeds: wall seconds of training, CPU seconds of all clients' turns together, None if
    some round does not say, and bytes per client."""

    seconds: float
    cpu_seconds: float | None
    bytes_per_client: float


@dataclass(frozen=True)
class Reproduction:
    """``noise``: points by which the paper's figure may be off by itself. ``clients``: client by client, row by row.
    ``about``: what was run, and how it differs from the paper, a sentence each."""

    title: str
    noise: float
    cells: Sequence[Cell]
    clients: Sequence[Cell]
    costs: Mapping[str, Cost]
    about: Sequence[str]


def cost(outcomes: Sequence[Outcome]) -> Cost | None:
    """What a round took; None if there was none."""
    metrics = [row["metrics"] for outcome in outcomes for row in outcome.rows]
    if not metrics:
        return None
    sent = statistics.fmean(values.get("bytes_per_client", 0.0) for values in metrics)
    cpu = [values["train_cpu_seconds"] for values in metrics if "train_cpu_seconds" in values]
    whole = statistics.fmean(cpu) if len(cpu) == len(metrics) else None
    return Cost(statistics.fmean(values["train_seconds"] for values in metrics), whole, sent)


def differs(cell: Cell, noise: float) -> bool:
    """Whether ours is further from the paper's than the paper's noise and the spread of our seeds explain."""
    if cell.paper is None or cell.ours is None:
        return False
    error = (cell.ours.deviation or 0.0) / cell.ours.count**0.5
    return abs(cell.ours.mean - cell.paper) > noise + _errors(cell.ours.count) * error


def _errors(count: int) -> float:
    """So many standard errors is the mean of ``count`` readings off at most, 19 times in 20 (Student's t)."""
    few = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
    return few.get(count, 2.2)


def order(made: Reproduction, column: str) -> list[str]:
    """Which pairs of rows ours have the other way round than the paper's, by whether that is more than chance."""
    both = [cell for cell in made.cells if cell.column == column and cell.paper is not None and cell.ours is not None]
    if len(both) < 2:
        return []
    noise = 2**0.5 * made.noise  # of a difference
    beyond = "More than chance in the paper and here"
    close = f"More than chance here, and within the noise of two of the paper's figures ({noise:.1f} points)"
    chance = "No more than chance here, or of a single seed"
    kinds: dict[str, list[str]] = {beyond: [], close: [], chance: []}
    for better, worse in permutations(both, 2):
        assert better.paper is not None and worse.paper is not None and better.ours and worse.ours  # noqa: PT018
        theirs, ours = better.paper - worse.paper, better.ours.mean - worse.ours.mean
        if theirs > 0 > ours:
            error = _error(better.seeds, worse.seeds)
            clear = error is not None and -ours > _errors(len(better.seeds)) * error
            kind = chance if not clear else beyond if theirs > noise else close
            spread = "" if error is None else f" ± {error:.1f}"
            kinds[kind].append(f"{better.row} - {worse.row} ({theirs:+.1f}, here {ours:+.1f}{spread})")
    turned, pairs = sum(map(len, kinds.values())), len(both) * (len(both) - 1) // 2
    if not turned:
        return [f"{column}: all {len(both)} rows stand in the paper's order."]
    said = f"{turned} of {pairs} pairs of rows stand in the other order than in the paper (± standard error)"
    return [f"{column}: {said}.", *(f"- {kind}: {'; '.join(found)}." for kind, found in kinds.items() if found)]


def _error(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The standard error of the mean difference, seed by seed: with a seed come the texts that are used and where
    training starts, for both. None where there is but one seed."""
    differences = [a - b for a, b in zip(one, other, strict=True)]
    return statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None


def markdown(made: Reproduction) -> str:
    columns = list(dict.fromkeys(cell.column for cell in made.cells))
    lines = [f"# {made.title}", "", *[f"{sentence}  " for sentence in made.about], ""]
    heads = [f"{column}: paper | ours | difference" for column in columns]
    beside = [f"times {REFERENCE}"] if _reference(made) else []
    lines += _table(["", *heads, "s / round", "CPU s", *beside, "MB / client"], _rows(made, columns))
    orders = [order(made, column) for column in columns]
    lines += [
        "",
        "Percent; ours: mean ± standard deviation over seeds. **Bold** differences are larger than the paper's own "
        f"noise ({made.noise:g} points) and what the mean of so few seeds is off by, 19 times in 20. s / round: wall "
        "time of training, with whatever else the machine did; CPU s: of all clients' turns in a round, together.",
        *("\n" + "\n".join(sentences) for sentences in orders if sentences),
    ]
    if made.clients:
        names = list(dict.fromkeys(cell.column for cell in made.clients))
        lines += ["", "## Client by client (paper / ours)", ""]
        lines += _table(["", *names], [*_clients(made.clients, names)])
    return "\n".join(lines) + "\n"


def _reference(made: Reproduction) -> float | None:
    """The CPU seconds that others are compared with; None where there are none."""
    spent = made.costs.get(REFERENCE)
    return spent.cpu_seconds if spent else None


def _rows(made: Reproduction, columns: Sequence[str]) -> list[list[str]]:
    found, reference = {(cell.row, cell.column): cell for cell in made.cells}, _reference(made)
    rows = []
    for row in dict.fromkeys(cell.row for cell in made.cells):
        texts = [row]
        for column in columns:
            cell = found[row, column]
            difference = _difference(cell)
            bold = f"**{difference}**" if differs(cell, made.noise) else difference
            texts.append(f"{_number(cell.paper)} | {_spread(cell.ours)} | {bold}")
        spent = made.costs.get(row)
        cpu = spent.cpu_seconds if spent else None
        texts += [_number(spent.seconds if spent else None), _number(cpu)]
        if reference:
            texts.append("" if cpu is None else f"{cpu / reference:.2f}")
        texts.append(_number(spent.bytes_per_client / 1e6 if spent else None))
        rows.append(texts)
    return rows


def _clients(cells: Sequence[Cell], names: Sequence[str]) -> list[list[str]]:
    found = {(cell.row, cell.column): cell for cell in cells}
    rows = []
    for row in dict.fromkeys(cell.row for cell in cells):
        pairs = [found.get((row, name)) for name in names]
        rows.append([row, *(f"{_number(pair.paper)} / {_spread(pair.ours)}" if pair else "" for pair in pairs)])
    return rows


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    width = sum(head.count("|") + 1 for head in heads)
    return [f"| {' | '.join(heads)} |", "|" + " --- |" * width, *(f"| {' | '.join(texts)} |" for texts in rows)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _spread(value: Spread | None) -> str:
    if value is None:
        return ""
    return f"{value.mean:.1f}" + ("" if value.deviation is None else f" ± {value.deviation:.1f}")


def _difference(cell: Cell) -> str:
    return "" if cell.paper is None or cell.ours is None else f"{cell.ours.mean - cell.paper:+.1f}"


def table_csv(made: Reproduction) -> str:
    """All cells: ``part, row, column, paper, ours, deviation, seeds``, the figure of each seed, and what was run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["part", "row", "column", "paper", "ours", "deviation", "seeds", "values", "about"])
    for part, cells in (("mean", made.cells), ("client", made.clients)):
        for cell in cells:
            ours = cell.ours
            figures = (ours.mean, ours.deviation, ours.count) if ours else (None, None, 0)
            values = " ".join(f"{value:.4f}" for value in cell.seeds)
            writer.writerow([part, cell.row, cell.column, cell.paper, *figures, values, " ".join(made.about)])
    return text.getvalue()


def picture(made: Reproduction, path: Path) -> None:
    """The paper's figures as hollow marks and ours as filled ones with their standard deviation, a panel a column."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(cell.column for cell in made.cells))
    rows = list(dict.fromkeys(cell.row for cell in made.cells))
    figure = Figure(figsize=(2.6 + 3.2 * len(columns), 1.6 + 0.32 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
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
        panel.set(yticks=list(places.values()), yticklabels=rows, xlabel=f"{column}, %")
        panel.grid(axis="x", color="#ddd")
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].legend(frameon=False, fontsize=8)
    figure.suptitle("\n".join([made.title, *(wrap(made.about[0], 60 + 30 * len(columns)))]), fontsize=8)
    figure.savefig(path, dpi=150)
