"""The output of ``fedtext ls``: tables for people, and JSON for programs."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedtext.metrics import find
from fedtext.metrics.wording import FORMATS, written
from sweeps.listing import ListedExperiment, ListedRun, ListedTrial

STYLES = {"running": "cyan", "finished": "green", "interrupted": "yellow", "failed": "bold red", "stopped": "yellow"}
GAP = 2  # characters between columns
WIDE = 400  # characters of a line in a file or a pipe
# Columns that a narrow terminal lacks, the first goes first
EXPENDABLE = ("experiment", "methods", "changed", "rounds", "method")
AGES = [(60.0, "s"), (60.0, "min"), (24.0, "h"), (float("inf"), "days")]
Row = Mapping[str, str]


def print_experiments(listed: Sequence[ListedExperiment], stream: TextIO) -> None:
    """Print the experiments that come with fedtext, a line each."""
    _print([{"experiment": one.name, "": one.summary} for one in listed], stream)


def print_runs(listed: Sequence[ListedRun], stream: TextIO) -> None:
    """Print a table of runs."""
    now = time.time()
    _print([_run(run, now) for run in listed], stream)


def print_run(run: ListedRun, stream: TextIO) -> None:
    """Print the trials of a run, and why some failed."""
    print_runs([run], stream)
    stream.write("\n")
    _print([_trial(trial, run.metric) for trial in run.trials], stream)
    for trial in run.trials:
        if trial.error:
            stream.write(f"{trial.id} failed: {trial.error}\n")


def as_json(experiments: Sequence[ListedExperiment], runs: Sequence[ListedRun]) -> dict[str, Any]:
    """Return experiments and runs as JSON objects. Times are in UTC, fractions in [0, 1]."""
    return {
        "experiments": [{"name": one.name, "path": str(one.path), "summary": one.summary} for one in experiments],
        "runs": [_as_json(run) for run in runs],
    }


def _as_json(run: ListedRun) -> dict[str, Any]:
    trials = [
        {
            **{"id": trial.id, "method": trial.method, "baseline": trial.baseline, "status": trial.status},
            **{"rounds": trial.rounds, "of": trial.of, "metrics": dict(trial.metrics), "error": trial.error},
        }
        for trial in run.trials
    ]
    return {
        **{"name": run.name, "path": str(run.path), "experiment": run.experiment, "command": run.command},
        **{"methods": run.methods, "state": run.state, "metric": run.metric, "best": run.best},
        "changed": datetime.fromtimestamp(run.changed, UTC).isoformat(timespec="seconds"),
        "trials": trials,
    }


def _run(run: ListedRun, now: float) -> Row:
    ended = sum(trial.status not in ("begun", "waiting") for trial in run.trials)
    return {
        "run": run.name,
        "experiment": run.experiment,
        "methods": ", ".join(run.methods),
        "state": run.state,
        "trials": f"{ended}/{len(run.trials)}",
        "rounds": _of(sum(trial.rounds for trial in run.trials), [trial.of for trial in run.trials]),
        "best": "" if run.best is None else f"{run.metric} {_value(run.metric, run.best)}",
        "changed": _ago(now - run.changed),
    }


def _trial(trial: ListedTrial, metric: str) -> Row:
    value = trial.metrics.get(metric)
    return {
        "trial": f"{trial.id}{' (baseline)' if trial.baseline else ''}",
        "method": trial.method,
        "state": trial.status,
        "rounds": _of(trial.rounds, [trial.of]),
        metric or "metric": "" if value is None else _value(metric, value),
    }


def _of(rounds: int, planned: Iterable[int | None]) -> str:
    known = [count for count in planned if count is not None]
    return f"{rounds}/{sum(known)}" if known else str(rounds)


def _value(name: str, value: float) -> str:
    """Format a metric with the digits that the table of a sweep has: fractions in percent."""
    metric = find(name)
    shown = written(name) or FORMATS.get(metric.unit if metric else "")
    return shown(value) if shown else f"{value:.4g}"


def _ago(seconds: float) -> str:
    """Format an age: ``12 s ago``, ``3 h ago``."""
    left = max(seconds, 0)
    for size, unit in AGES:
        if left < size:
            return f"{left:.0f} {unit if left >= 1.5 or unit != 'days' else 'day'} ago"
        left /= size
    raise AssertionError


def _print(rows: Sequence[Row], stream: TextIO) -> None:
    """Print rows as a table, on a narrow terminal without some columns."""
    if not rows:
        return
    terminal = stream.isatty()
    console = Console(file=stream, width=None if terminal else WIDE)
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    for name in (*EXPENDABLE, None):
        if name is None or sum(_widths(rows, columns)) <= console.width:
            break
        columns = [column for column in columns if column != name]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    whole = dict(zip(columns, _widths(rows, columns), strict=True))
    # The first column is cut where not all fit; where the last one has no name, that one is
    cut = "" if "" in columns else columns[0]
    left = console.width - sum(width for name, width in whole.items() if name != cut) - GAP
    for name in columns:
        table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=max(left, 1) if name == cut else None)
    for row in rows:
        table.add_row(*(Text(row[name], STYLES.get(row[name], "") if name == "state" else "") for name in columns))
    with console.capture() as printed:
        console.print(table)
    stream.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def _widths(rows: Sequence[Row], columns: Sequence[str]) -> Iterator[int]:
    """Yield the width of each column, with the gap behind it. One without a name is cut."""
    for name in columns:
        yield (max(len(name), *(len(row[name]) for row in rows)) if name else 0) + GAP
