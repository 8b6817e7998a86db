"""Display of running trials: a live table on a terminal (live.py), plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console

from actors.waiting import Use
from dashboards.board import Board, Standing
from dashboards.live import LiveProgress
from dashboards.trial import Case, Ended, one_line, say
from fedtext.metrics import legend
from fedtext.metrics.wording import FACTS, duration, facts, pace, sent
from fedtext.records import RoundRecord

LINE_SECONDS = 1.0  # at most one line per trial in this time, except for the last round


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
        say(sentence)

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
        with suppress(OSError):  # it is closed, or its disk is full: trials go on
            self.stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
            self.stream.flush()


def progress(cases: Iterable[Case], stream: TextIO | None = None) -> PlainProgress | LiveProgress:
    """Return a live table if ``stream`` (default: standard output) is a terminal that can redraw, else plain lines."""
    stream = stream or sys.stdout
    if stream.isatty():
        console = Console(file=stream)
        if console.is_terminal and not console.is_dumb_terminal:
            return LiveProgress(cases, console)
    return PlainProgress(cases, stream)


def _facts(standing: Standing) -> list[str]:
    said = [f"round {standing.round}/{standing.rounds}"]
    said += facts(standing.values)
    if 0 < standing.evaluated < standing.round:
        said.append(f"(evaluated after round {standing.evaluated})")
    if standing.bytes_up or standing.bytes_down:
        said.append(sent(standing.bytes_up, standing.bytes_down))
    if standing.pace is not None:
        said.append(f"{pace(standing.pace)} s/round")
    if standing.eta is not None and standing.round < standing.rounds:
        said.append(f"ETA {duration(standing.eta)}")
    return said
