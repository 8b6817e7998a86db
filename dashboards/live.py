"""The live table of running trials on a terminal."""

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from actors.waiting import Use
from dashboards.board import Board, Standing
from dashboards.trial import Case, Ended
from fedtext.metrics import legend
from fedtext.metrics.wording import data_size, decimal, duration, pace, written
from fedtext.records import RoundRecord

STYLES = {"waiting": "dim", "running": "cyan", "finished": "green", "stopped": "yellow", "failed": "bold red"}
METRICS = ("Ag", "Ap_0", "AUC", "perplexity", "perplexity_val")  # with a column in the table
COLUMNS = ("trial", "state", "round", "loss", *METRICS, "bytes", "s/round", "ETA")
KEPT = ("trial", "state", "round")
# Columns that a narrow screen may lack; the last one goes first
IMPORTANT = ("Ag", "perplexity_val", "ETA", "perplexity", "loss", "AUC", "Ap_0", "s/round", "bytes")
GAP, NAME = 2, 18  # characters between columns; least width of the names of trials before columns are left out
LEAST, CAUSES = 3, 3  # trials and causes of failures that a low screen shows
ORDER = (
    "running",
    "failed",
    "finished",
    "stopped",
    "waiting",
)  # which trials are shown first if not all fit on the screen


class LiveProgress(Board):
    """One row per trial, redrawn in place, with failures, what waits for what, and the use of the cluster below.

    Trials that do not fit on the screen are counted. A narrow screen has fewer columns.
    """

    shows_cluster = True

    def __init__(self, cases: Iterable[Case], console: Console | None = None) -> None:
        super().__init__(cases)
        self.console, self.over = console or Console(), False
        self._lock = threading.Lock()  # the display is redrawn by a thread of its own
        self._live = Live(get_renderable=self.render, console=self.console, refresh_per_second=2)

    def plan(self, case: Case) -> None:
        with self._lock:
            super().plan(case)

    def start(self, case: Case, records: Iterable[RoundRecord] = ()) -> None:
        with self._lock:
            super().start(case, records)

    def row(self, case_id: str, record: RoundRecord) -> None:
        with self._lock:
            super().row(case_id, record)

    def finish(self, case_id: str, state: Ended, message: str = "") -> None:
        with self._lock:
            super().finish(case_id, state, message)

    def restore(self, case: Case, records: Iterable[RoundRecord], state: Ended, message: str = "") -> None:
        with self._lock:
            super().restore(case, records, state, message)

    def wait(self, sentence: str) -> None:
        """Do nothing: ``look`` is told the same, more often."""

    def look(self, use: Use, why: str) -> None:
        with self._lock:
            super().look(use, why)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:  # what stays on the screen is about the trials: a table with a legend may follow
            self.over, self.use = True, None
        with suppress(OSError):  # the terminal is gone
            self._live.__exit__(kind, error, trace)

    def render(self) -> Group:
        """Return the table, the legend, causes of failures, what waits for what, the cluster, and a summary."""
        with self._lock:
            rows = {id_: _cells(standing) for id_, standing in self.standings.items()}
            columns = _fitting(rows.values(), self.console.width)
            below = self._below()
            height = self.console.height - 2 - sum(_lines(text, self.console.width) for text in below)
            explained = (
                []
                if self.over
                else [
                    Text(line, "dim", no_wrap=True, overflow="ellipsis")
                    for line in legend(name for name in columns if name in METRICS)
                ]
            )
            if _room(height - len(explained), len(rows)) < min(len(rows), LEAST):
                explained = []
            room = max(_room(height - len(explained), len(rows)), LEAST)
            shown = set(sorted(rows, key=lambda id_: ORDER.index(self.standings[id_].state))[:room])
            table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
            widths = _widths(rows.values(), columns)
            left = self.console.width - sum(width + GAP for name, width in widths.items() if name != "trial") - GAP
            for name in columns:  # where not all fit, names of trials are cut
                width = min(widths[name], max(left, 1)) if name == "trial" else widths[name]
                justify: Literal["left", "right"] = "left" if name in ("trial", "state") else "right"
                table.add_column(name, justify=justify, overflow="ellipsis", no_wrap=True, width=width)
            for id_, cells in rows.items():
                if id_ in shown:  # Text, not str: a label such as [a=1] would be taken for markup
                    style = STYLES[self.standings[id_].state]
                    table.add_row(*(Text(cells[name], style if name == "state" else "") for name in columns))
            hidden = len(rows) - len(shown)
            more = [Text(f"... and {hidden} more trials", style="dim")] if hidden else []
            return Group(table, *more, *explained, *below)

    def _below(self) -> list[Text]:
        """Return the lines below the table and its legend."""
        failures = self.failures()
        lines = [Text(line, STYLES["failed"].removeprefix("bold ")) for line in failures[:CAUSES]]
        if len(failures) > CAUSES:
            lines.append(Text(f"... and {len(failures) - CAUSES} more failed", style="dim"))
        if not self.over:
            lines += [Text(line, style="dim") for line in (self.waiting(), self.cluster()) if line]
        return [*lines, Text(self.summary(), style="bold")]


def _fitting(rows: Iterable[Mapping[str, str]], width: int) -> list[str]:
    """Return the columns of the table: those with values, on a narrow screen without the least important ones."""
    rows = list(rows)
    columns = [name for name in COLUMNS if name in KEPT or any(row[name] for row in rows)]
    widths = _widths(rows, columns)
    widths["trial"] = min(widths["trial"], max(NAME, width // 3))
    for name in reversed(IMPORTANT):
        if sum(widths[column] + GAP for column in columns) <= width:
            break
        columns = [column for column in columns if column != name]
    return columns


def _widths(rows: Iterable[Mapping[str, str]], columns: Iterable[str]) -> dict[str, int]:
    """Return how many characters each column takes."""
    return {name: max(len(name), *(len(row[name]) for row in rows), 0) for name in columns}


def _room(height: int, trials: int) -> int:
    """Return how many trials have room: if not all, a line says so."""
    return height - (trials > height)


def _lines(text: Text, width: int) -> int:
    """Return the number of lines that a text takes."""
    return -(-len(text) // max(width, 1))


def _cells(standing: Standing) -> dict[str, str]:
    """Return the cells of a trial, by column."""
    values, total = standing.values, standing.bytes_up + standing.bytes_down
    cells = {
        "trial": standing.name,
        "state": standing.state,
        "round": f"{standing.round}/{standing.rounds}",
        "loss": decimal(values["loss"]) if "loss" in values else "",
        "bytes": data_size(total) if total else "",
        "s/round": pace(standing.pace) if standing.pace is not None else "",
        "ETA": duration(standing.eta) if standing.eta is not None else "",
    }
    for name in METRICS:
        wording = written(name)
        cells[name] = wording(values[name]) if name in values and wording else ""
    return cells
