"""Display of running trials: a live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dashboards.board import Board, Standing
from dashboards.trial import Case, Ended, data_size, decimal, duration, one_line, written
from fedtext.metrics import legend
from fedtext.records import RoundRecord

LINE_SECONDS = 1.0  # at most one line per trial in this time, except for the last round
STYLES = {"waiting": "dim", "running": "cyan", "finished": "green", "stopped": "yellow", "failed": "bold red"}
FACTS = ("Ag", "Ap_0", "Ap", "Local", "Global", "AUC", "perplexity", "perplexity_val")  # metrics on a line
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
    def start(self, case: Case, records: Iterable[RoundRecord] = ()) -> None: ...
    def row(self, case_id: str, record: RoundRecord) -> None: ...
    def finish(self, case_id: str, state: Ended, message: str = "") -> None: ...
    def restore(self, case: Case, records: Iterable[RoundRecord], state: Ended, message: str = "") -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainProgress(Board):
    """One line per event, without control characters: for logs, jobs and pipes."""

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
    """One row per trial, redrawn in place; trials that do not fit on the screen are counted below."""

    def __init__(self, cases: Iterable[Case], console: Console | None = None) -> None:
        super().__init__(cases)
        self.console = console or Console()
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

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def render(self) -> Group:
        """Return the table, the number of trials that it leaves out, the legend, causes of failures and a summary."""
        with self._lock:
            table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
            table.add_column("trial", overflow="ellipsis", no_wrap=True, min_width=8)
            there = {name for each in self.standings.values() for name in each.values}
            known = ("Ag", "Ap_0", "AUC", "perplexity", "perplexity_val")
            metrics = [name for name in known if name in there] or ["Ag"]
            room = max(self.console.height - 6 - len(legend(metrics)), 3)
            shown = set(sorted(self.standings, key=lambda id_: ORDER.index(self.standings[id_].state))[:room])
            explained = [Text(line, style="dim") for line in legend(metrics)]
            for name in ("state", "round", "loss", *metrics, "bytes", "s/round", "ETA"):
                table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
            for id_, standing in self.standings.items():
                if id_ in shown:
                    table.add_row(*_cells(standing, metrics))
            failed = [
                standing for standing in self.standings.values() if standing.message and standing.state == "failed"
            ]
            causes = [Text(f"{standing.name}: {standing.message}", style="red") for standing in failed[:3]]
            hidden = len(self.standings) - len(shown)
            more = [Text(f"... and {hidden} more trials", style="dim")] if hidden else []
            return Group(table, *more, *explained, *causes, Text(self.summary(), style="bold"))


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


def _cells(standing: Standing, metrics: Iterable[str]) -> list[Text]:
    values, total = standing.values, standing.bytes_up + standing.bytes_down
    texts = [
        standing.name,
        standing.state,
        f"{standing.round}/{standing.rounds}",
        decimal(values["loss"]) if "loss" in values else "",
        *(wording(values[name]) if name in values and (wording := written(name)) else "" for name in metrics),
        data_size(total) if total else "",
        _pace(standing.pace) if standing.pace is not None else "",
        duration(standing.eta) if standing.eta is not None else "",
    ]
    # Text, not str: a label such as [a=1] would be taken for markup
    return [Text(text, style=STYLES[standing.state] if index == 1 else "") for index, text in enumerate(texts)]


def _pace(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 0.095 else f"{seconds:.3f}"
