"""The layout of the final table: which columns a terminal has room for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from fedtext.metrics import find

GAP = 2  # characters between two columns
NAME = 18  # least width of the names of trials before columns are left out
EXPENDABLE = ("method", "loss", "s/round", "rounds", "bytes/client/round")  # the first goes first
PRIVACY = ("epsilon", "delta")  # the last metrics that are left out, and only together


@dataclass(frozen=True)
class Line:
    """One trial of the table, as text."""

    case_id: str
    cells: dict[str, str]
    failed: bool
    baseline: bool


def _left(name: str) -> bool:
    return name in ("trial", "method", "status")


def aligned(lines: Sequence[Line], columns: Sequence[str]) -> list[str]:
    """Return the lines of a table for a file or a pipe."""
    widths = _widths(lines, columns)

    def row(cells: Mapping[str, str]) -> str:
        texts = (cells.get(name, "") or "-" for name in columns)
        padded = (
            text.ljust(widths[name]) if _left(name) else text.rjust(widths[name])
            for name, text in zip(columns, texts, strict=True)
        )
        return (" " * GAP).join(padded).rstrip()

    header = row({name: name for name in columns})
    return [header, "-" * len(header), *(row(line.cells) for line in lines)]


def _widths(lines: Sequence[Line], columns: Sequence[str]) -> dict[str, int]:
    return {name: max(len(name), *(len(line.cells.get(name, "")) for line in lines)) for name in columns}


def fitting(lines: Sequence[Line], columns: Sequence[str], width: int, needed: Collection[str]) -> list[str]:
    """Return the columns that fit on a terminal; the least important ones are left out first.

    Args:
        lines: The rows.
        columns: All columns with values.
        width: Characters of a line.
        needed: Columns that stay: the metric by which the table is sorted, and swept keys.
    """
    kept, widths = list(columns), _widths(lines, columns)
    widths["trial"] = min(widths["trial"], NAME)
    metrics = [name for name in columns if find(name) is not None and name not in (*EXPENDABLE, *PRIVACY)]
    for names in (*((name,) for name in (*EXPENDABLE, *reversed(metrics))), PRIVACY):
        if sum(widths[column] + GAP for column in kept) <= width:
            break
        kept = [name for name in kept if name not in names or name in needed]
    return kept


def rich_table(lines: Sequence[Line], columns: Sequence[str], width: int, metric: str) -> Table:
    """Return the table for a terminal. Where not all fits, names of trials are cut, and no number is.

    Args:
        lines: The rows.
        columns: The columns that are shown.
        width: Characters of a line.
        metric: The metric by which the table is sorted, which is bold.
    """
    table = Table(header_style="bold underline", box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    widths = _widths(lines, columns)
    left = width - sum(wide + GAP for name, wide in widths.items() if name != "trial") - GAP
    widths["trial"] = min(widths["trial"], max(left, 1))
    for name in columns:
        style = "bold" if name == metric else ""
        justify: Literal["left", "right"] = "left" if _left(name) else "right"
        exact = widths[name]
        table.add_column(name, justify=justify, style=style, overflow="ellipsis", no_wrap=True, width=exact)
    for line in lines:
        style = "red" if line.failed else "dim" if line.baseline else ""
        table.add_row(*(Text(line.cells.get(name, "") or "-") for name in columns), style=style)
    return table
