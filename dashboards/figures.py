"""A table of a paper beside our own results: values with their units, costs of a round, and their origin."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboards.groups import Spread
from dashboards.trial import Outcome
from fedtext.metrics import find

VECTORS = "+"  # in a digest of data before that of word vectors that not all rows read


@dataclass(frozen=True)
class Unit:
    """The unit of a column.

    Args:
        name: As written in tables.
        factor: A metric times ``factor`` is the value shown.
        less: Whether smaller values are better.
        relative: Whether the noise of a paper's value is given in percent of it; else in points.
        none: Written where a run has no value.
    """

    name: str
    factor: float = 1.0
    less: bool = True
    relative: bool = True
    none: str = "no value"

    def of(self, value: float | None) -> float | None:
        """Return the value of a metric in this unit; None if there is none, or none that is finite."""
        return None if value is None or not math.isfinite(value) else self.factor * value


PERCENT = Unit("%", 100.0, less=False, relative=False)
LEAKED = Unit("% leaked", 100.0, relative=False)
PERPLEXITY = Unit("perplexity", none="not finite")
ROUNDS = Unit("rounds", none="not reached")
MEGABYTES = Unit("MB", 1e-6, none="not reached")
UNITS = {one.name: one for one in (PERCENT, LEAKED, PERPLEXITY, ROUNDS, MEGABYTES)}
UNIGRAM = "unigram"  # the row of word counts alone, beside language models


def unigram_row(rows: Sequence[str], whole: bool) -> str:
    """Return the name of the unigram row of the corpus that ``rows`` were trained on. ``whole``: these are all rows of
    the table."""
    return UNIGRAM if whole else f"{UNIGRAM} of {', '.join(rows)}"


def counted_rows(name: str, rows: Sequence[str]) -> list[str]:
    """Return those of ``rows`` that the unigram row called ``name`` is to be compared with (``unigram_row``)."""
    if name == UNIGRAM:
        return list(rows)
    left, found = f"{name.removeprefix(f'{UNIGRAM} of ')}, ", []
    while one := max((row for row in rows if left.startswith(f"{row}, ")), key=len, default=""):  # names have commas
        found.append(one)
        left = left.removeprefix(f"{one}, ")
    return found


def unit(metric: str) -> Unit:
    """Return the unit in which a metric is shown: fractions in percent. Less is better of what an attacker recovers."""
    known = find(metric)
    if known is None or known.unit == "fraction":
        return LEAKED if known and known.better == "smaller" else PERCENT
    return {"rounds": ROUNDS, "bytes": MEGABYTES, "perplexity": PERPLEXITY}.get(known.unit, PERCENT)


@dataclass(frozen=True)
class Cell:
    """One value of the table.

    Args:
        row, column: Its place.
        paper: The paper's value; None if it has none.
        seeds: Our value under each seed, None for a seed without one, such as a threshold that was not reached. Empty
            if nothing was run or the metric is not computed.
        unit: The unit of both.
    """

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
        """Whether every seed has a value: the mean of an incomplete set would be biased."""
        return bool(self.seeds) and len(self.found) == len(self.seeds)


@dataclass(frozen=True)
class Cost:
    """The cost of a round, as means over the rounds of all seeds.

    Args:
        seconds: Wall time of training.
        cpu_seconds: CPU time of all clients' local updates together; None if some round does not report it.
        bytes_per_client: Bytes both ways, of a client that took part in the round.
    """

    seconds: float
    cpu_seconds: float | None
    bytes_per_client: float


@dataclass(frozen=True)
class Origin:
    """The reproduced table, and the command that ran it."""

    paper: str  # the name of its file: kteps
    scene: str  # the data set
    table: str  # II, fig3
    command: str  # those of several runs, a line each

    @property
    def commands(self) -> list[str]:
        return self.command.splitlines()


@dataclass(frozen=True)
class Reproduction:
    """A table of a paper beside our own results.

    Args:
        title: The heading.
        noise: Spread of the paper's own values, in points or in percent as their unit says.
        cells: All values of the table.
        clients: Values of single clients.
        costs: Cost of a round, by row.
        about: Sentences on what was run, and on how it differs from the paper.
        compare: Pairs of rows whose paired difference is tested.
        shown: Markdown that runs have written, by row.
        missing: The table's rows that were not run.
        commits: The commit of the code that ran each row, where it is known.
        data: A digest of the data of each row, where it is known (``common`` is its part that is of all rows).
        origin: None for a table that is made of no paper's file.
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
    commits: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    origin: Origin | None = None

    @property
    def source(self) -> Origin:
        """The origin of a table that can be found again."""
        assert self.origin is not None, "only tables in tests have none"
        return self.origin

    @property
    def seeds(self) -> int:
        """With how many seeds rows were run, at most."""
        return max((len(cell.seeds) for cell in self.cells), default=0)

    @property
    def fewest_seeds(self) -> int:
        """With how many seeds rows were run, at least; rows that were not run do not count."""
        return min((len(cell.seeds) for cell in self.cells if cell.seeds), default=0)

    def comparable(self, one: str, other: str) -> bool:
        """Whether two rows can be compared: they are not known to be of different data."""
        return len({common(self.data[row]) for row in (one, other) if row in self.data}) < 2

    def noise_of(self, cell: Cell) -> float:
        """Return the noise of the paper's value, in the unit of the cell."""
        assert cell.paper is not None
        return self.noise * cell.paper / 100 if cell.unit.relative else self.noise


def common(digest: str) -> str:
    """Return the part of a digest of a row's data that rows with other word vectors have too."""
    return digest.partition(VECTORS)[0]


def cost(outcomes: Sequence[Outcome]) -> Cost | None:
    """Return the mean cost of a round; None if no round was completed."""
    metrics = [record.metrics for outcome in outcomes for record in outcome.rows]
    if not metrics:
        return None
    sent = statistics.fmean(values.get("bytes_per_client", 0.0) for values in metrics)
    cpu = [values["train_cpu_seconds"] for values in metrics if "train_cpu_seconds" in values]
    whole = statistics.fmean(cpu) if len(cpu) == len(metrics) else None
    return Cost(statistics.fmean(values["train_seconds"] for values in metrics), whole, sent)
