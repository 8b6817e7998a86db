"""A paper's table and ours as numbers: cells with their units, what a round cost, and where they come from."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboards.groups import Spread
from dashboards.trial import Outcome
from fedtext.metrics import find


@dataclass(frozen=True)
class Unit:
    """What the numbers in a column are: so many times what was read, and of some ``less`` is better. ``none`` stands
    where a run has no figure. The noise of a paper's figure is in points, or ``relative``: in percent of it."""

    name: str
    factor: float = 1.0
    less: bool = True
    relative: bool = True
    none: str = "no figure"

    def of(self, value: float | None) -> float | None:
        """What was read, in this unit; None if nothing was, or nothing finite."""
        return None if value is None or not math.isfinite(value) else self.factor * value


PERCENT = Unit("%", 100.0, less=False, relative=False)
LEAKED = Unit("% leaked", 100.0, relative=False)
PERPLEXITY = Unit("perplexity", none="not finite")
ROUNDS = Unit("rounds", none="not reached")
MEGABYTES = Unit("MB", 1e-6, none="not reached")
UNITS = {one.name: one for one in (PERCENT, LEAKED, PERPLEXITY, ROUNDS, MEGABYTES)}
UNIGRAM = "unigram"  # the row of word counts alone, beside language models


def unigram_row(rows: Sequence[str], whole: bool) -> str:
    """The name of the row of word counts that is of the texts of ``rows``: these are all of the table, or ``whole`` is
    False."""
    return UNIGRAM if whole else f"{UNIGRAM} of {', '.join(rows)}"


def counted_rows(name: str, rows: Sequence[str]) -> list[str]:
    """Of ``rows`` those that the row of word counts called ``name`` stands beside (``unigram_row``)."""
    if name == UNIGRAM:
        return list(rows)
    left, found = f"{name.removeprefix(f'{UNIGRAM} of ')}, ", []
    while one := max((row for row in rows if left.startswith(f"{row}, ")), key=len, default=""):  # names have commas
        found.append(one)
        left = left.removeprefix(f"{one}, ")
    return found


def unit(metric: str) -> Unit:
    """The unit in which a metric is shown. A fraction is shown in percent; of what an attacker recovers less is
    better."""
    known = find(metric)
    if known is None or known.unit == "fraction":
        return LEAKED if known and known.better == "smaller" else PERCENT
    return {"rounds": ROUNDS, "bytes": MEGABYTES, "perplexity": PERPLEXITY}.get(known.unit, PERCENT)


@dataclass(frozen=True)
class Cell:
    """One figure, and ``seeds``: ours seed by seed, None for a seed that has none, such as a threshold that was not
    reached; empty where nothing was run or nothing is read."""

    row: str
    column: str
    paper: float | None
    seeds: Sequence[float | None]
    unit: Unit = PERCENT

    @property
    def found(self) -> list[float]:
        return [value for value in self.seeds if value is not None]

    @property
    def ours(self) -> Spread | None:
        return Spread.of(self.found) if self.found else None

    @property
    def whole(self) -> bool:
        """Whether every seed has a figure: the mean of those that have would flatter the others."""
        return bool(self.seeds) and len(self.found) == len(self.seeds)


@dataclass(frozen=True)
class Cost:
    """Means over the rounds of all seeds: wall seconds of training, CPU seconds of all clients' turns together, None if
    some round does not say, and bytes per client."""

    seconds: float
    cpu_seconds: float | None
    bytes_per_client: float


@dataclass(frozen=True)
class Origin:
    """Which table was reproduced, and the command that did."""

    paper: str  # the name of its file: kteps
    scene: str  # the data set
    table: str  # II, fig3
    command: str


@dataclass(frozen=True)
class Reproduction:
    """A table of a paper beside ours.

    Args:
        title: The heading.
        noise: By how much the paper's figure may be off by itself, in points or percent as its unit says.
        cells: All figures of the table.
        clients: Those of single clients.
        costs: Of a round, by row.
        about: What was run, and how it differs from the paper, a sentence each.
        compare: Pairs of rows whose paired difference is tested.
        shown: What runs have written, by row, as Markdown.
        missing: The table's rows that were not run.
        origin: None of a table that is not to be found again.
    """

    title: str
    noise: float
    cells: Sequence[Cell]
    clients: Sequence[Cell]
    costs: Mapping[str, Cost]
    about: Sequence[str]
    compare: Sequence[tuple[str, str]] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()
    origin: Origin | None = None

    @property
    def source(self) -> Origin:
        """The origin of a table that can be found again."""
        assert self.origin is not None, "only tables in tests have none"
        return self.origin

    @property
    def seeds(self) -> int:
        """With how many seeds each row was run."""
        return max((len(cell.seeds) for cell in self.cells), default=0)

    def noise_of(self, cell: Cell) -> float:
        """That of the paper's figure, in the unit of the cell."""
        assert cell.paper is not None
        return self.noise * cell.paper / 100 if cell.unit.relative else self.noise


def cost(outcomes: Sequence[Outcome]) -> Cost | None:
    """What a round took; None if there was none."""
    metrics = [record.metrics for outcome in outcomes for record in outcome.rows]
    if not metrics:
        return None
    sent = statistics.fmean(values.get("bytes_per_client", 0.0) for values in metrics)
    cpu = [values["train_cpu_seconds"] for values in metrics if "train_cpu_seconds" in values]
    whole = statistics.fmean(cpu) if len(cpu) == len(metrics) else None
    return Cost(statistics.fmean(values["train_seconds"] for values in metrics), whole, sent)
