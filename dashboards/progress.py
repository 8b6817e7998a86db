"""Display of running trials: a live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Literal, Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from actors.waiting import Use
from dashboards.board import Board, Standing
from dashboards.trial import Case, Ended, data_size, decimal, duration, one_line, written
from fedtext.metrics import legend
from fedtext.records import RoundRecord

LINE_SECONDS = 1.0  # at most one line per trial in this time, except for the last round
STYLES = {"waiting": "dim", "running": "cyan", "finished": "green", "stopped": "yellow", "failed": "bold red"}
FACTS = ("Ag", "Ap_0", "Ap", "Local", "Global", "AUC", "perplexity", "perplexity_val")  # metrics on a line
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


class Progress(Protocol):
    """A display of trials. ``row`` may be called with a round again: only new rounds count."""

    more: int  # trials that are not known yet

    def plan(self, case: Case) -> None: ...

    shows_cluster: bool  # whether it is told how the cluster is used

    def start(self, case: Case, records: Iterable[RoundRecord] = ()) -> None: ...
    def row(self, case_id: str, record: RoundRecord) -> None: ...
    def finish(self, case_id: str, state: Ended, message: str = "") -> None: ...
    def wait(self, sentence: str) -> None: ...  # no trial runs, and the next one waits for its share of the cluster
    def look(self, use: Use, why: str) -> None: ...
    def restore(self, case: Case, records: Iterable[RoundRecord], state: Ended, message: str = "") -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainProgress(Board):
    """One line per event, without control characters: for logs, jobs and pipes."""

    shows_cluster = False

    def __init__(
        self,
        cases: Iterable[Case],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        every: float = LINE_SECONDS,
    ) -> None:
        super().__init__(cases)
        self.stream, self.clock, self.every = stream or sys.stdout, clock, every
        self.explained: set[str] = set()  # lines of the legend that have been printed

    def start(self, case: Case, records: Iterable[RoundRecord] = ()) -> None:
        super().start(case, records)
        standing = self.standings[case.id]
        went = f"goes on after round {standing.round}/{standing.rounds}" if standing.round else "started"
        self._print(standing, went if standing.round else f"{went}  {standing.rounds} rounds")

    def row(self, case_id: str, record: RoundRecord) -> None:
        standing = self.standings[case_id]
        if not standing.add(record):
            return
        now = self.clock()
        if standing.round < standing.rounds and now - standing.spoken < self.every:
            return
        standing.spoken = now
        self._explain(standing)
        self._print(standing, "  ".join(_facts(standing)))

    def finish(self, case_id: str, state: Ended, message: str = "") -> None:
        super().finish(case_id, state, message)
        standing = self.standings[case_id]
        text = f"{state} after round {standing.round}/{standing.rounds}" if state != "finished" else state
        self._print(standing, f"{text}: {standing.message}" if standing.message else text)
        self._write(self.summary())

    def restore(self, case: Case, records: Iterable[RoundRecord], state: Ended, message: str = "") -> None:
        super().restore(case, records, state, message)
        standing = self.standings[case.id]
        self._explain(standing)
        self._print(standing, f"{state} earlier  {'  '.join(_facts(standing))}")

    def wait(self, sentence: str) -> None:
        """Print on standard error that no trial can start."""
        print(sentence, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is no display to close."""

    def _explain(self, standing: Standing) -> None:
        """Print the meaning of each metric before its first value."""
        for line in legend(name for name in FACTS if name in standing.values):
            if line not in self.explained:
                self._write(line)
                self.explained.add(line)

    def _print(self, standing: Standing, text: str) -> None:
        self._write(f"{standing.name}  {text}")

    def _write(self, line: str) -> None:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        line = one_line(line) if "\n" in line else line
        self.stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
        self.stream.flush()


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


def progress(cases: Iterable[Case], stream: TextIO | None = None) -> PlainProgress | LiveProgress:
    """Return a live table if ``stream`` (default: standard output) is a terminal that can redraw, else plain lines."""
    stream = stream or sys.stdout
    if stream.isatty():
        console = Console(file=stream)
        if console.is_terminal and not console.is_dumb_terminal:
            return LiveProgress(cases, console)
    return PlainProgress(cases, stream)


def _facts(standing: Standing) -> list[str]:
    facts = [f"round {standing.round}/{standing.rounds}"]
    if "loss" in standing.values:
        facts.append(f"loss {decimal(standing.values['loss'])}")
    for name in FACTS:
        if name in standing.values and (wording := written(name)):
            facts.append(f"{name} {wording(standing.values[name])}")
    if standing.bytes_up or standing.bytes_down:
        facts.append(f"up {data_size(standing.bytes_up)} down {data_size(standing.bytes_down)}")
    if standing.pace is not None:
        facts.append(f"{_pace(standing.pace)} s/round")
    if standing.eta is not None and standing.round < standing.rounds:
        facts.append(f"ETA {duration(standing.eta)}")
    return facts


def _cells(standing: Standing) -> dict[str, str]:
    """Return the cells of a trial, by column."""
    values, total = standing.values, standing.bytes_up + standing.bytes_down
    cells = {
        "trial": standing.name,
        "state": standing.state,
        "round": f"{standing.round}/{standing.rounds}",
        "loss": decimal(values["loss"]) if "loss" in values else "",
        "bytes": data_size(total) if total else "",
        "s/round": _pace(standing.pace) if standing.pace is not None else "",
        "ETA": duration(standing.eta) if standing.eta is not None else "",
    }
    for name in METRICS:
        wording = written(name)
        cells[name] = wording(values[name]) if name in values and wording else ""
    return cells


def _pace(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 0.095 else f"{seconds:.3f}"
