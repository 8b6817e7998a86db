"""A paper's figures and ours: what they are numbers of, how far apart, and whether that is more than chance."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from dashboards.groups import Spread
from dashboards.trial import Outcome
from fedtext.selection import smaller_is_better

LISTED = 12  # pairs of rows that are named, of each kind


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
LEAKED = Unit("%", 100.0, relative=False)
PERPLEXITY = Unit("perplexity", none="not finite")
ROUNDS = Unit("rounds", none="not reached")
MEGABYTES = Unit("MB", 1e-6, none="not reached")


def unit(metric: str) -> Unit:
    """That of a metric: perplexities, rounds to a threshold, bytes; everything else is a fraction, shown in percent. Of
    what an attacker recovers less is better."""
    for beginning, found in (("rounds_to_", ROUNDS), ("bytes_", MEGABYTES), ("inversion_", LEAKED), ("rows_", LEAKED)):
        if metric.startswith(beginning):
            return found
    return PERPLEXITY if smaller_is_better(metric) else PERCENT


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
class Reproduction:
    """``noise``: by how much the paper's figure may be off by itself, in points or percent as its unit says.
    ``clients``: client by client, row by row. ``about``: what was run, and how it differs from the paper, a sentence
    each. ``compare``: pairs of rows whose difference is looked at, whatever the paper has. ``shown``: what runs have
    written, row by row, as Markdown."""

    title: str
    noise: float
    cells: Sequence[Cell]
    clients: Sequence[Cell]
    costs: Mapping[str, Cost]
    about: Sequence[str]
    compare: Sequence[tuple[str, str]] = ()
    shown: Mapping[str, str] = field(default_factory=dict)

    def noise_of(self, cell: Cell) -> float:
        """That of the paper's figure, in the unit of the cell."""
        assert cell.paper is not None
        return self.noise * cell.paper / 100 if cell.unit.relative else self.noise


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
    """Whether ours is further from the paper's than the ``noise`` of the paper's and the spread of our seeds
    explain."""
    if cell.paper is None or cell.ours is None or not cell.whole:
        return False
    error = (cell.ours.deviation or 0.0) / cell.ours.count**0.5
    return abs(cell.ours.mean - cell.paper) > noise + _errors(cell.ours.count) * error


def _errors(count: int) -> float:
    """So many standard errors is the mean of ``count`` readings off at most, 19 times in 20 (Student's t)."""
    few = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
    return few.get(count, 2.2)


@dataclass(frozen=True)
class Difference:
    """The mean difference of two rows, seed by seed: with a seed come the texts that are used and where training
    starts, for both. ``error`` is its standard error, None where there is but one seed."""

    mean: float
    error: float | None
    count: int

    @property
    def clear(self) -> bool:
        """Whether it is more than chance."""
        return self.error is not None and abs(self.mean) > _errors(self.count) * self.error


def difference(one: Cell, other: Cell) -> Difference | None:
    """``one`` less ``other``. None where a seed has no figure."""
    if not (one.whole and other.whole):
        return None
    between = [a - b for a, b in zip(one.found, other.found, strict=True)]
    error = statistics.stdev(between) / math.sqrt(len(between)) if len(between) > 1 else None
    return Difference(statistics.fmean(between), error, len(between))


def order(made: Reproduction, column: str) -> list[str]:
    """Which pairs of rows ours have the other way round than the paper's, by whether that is more than chance."""
    both = [cell for cell in made.cells if cell.column == column and cell.paper is not None and cell.whole]
    if len(both) < 2:
        return []
    noise = f"{made.noise:g}% each" if both[0].unit.relative else f"{2**0.5 * made.noise:.1f} points"
    beyond = "More than chance in the paper and here"
    close = f"More than chance here, and within the noise of two of the paper's figures ({noise})"
    chance = "No more than chance here, or of a single seed"
    kinds: dict[str, list[str]] = {beyond: [], close: [], chance: []}
    level = 0
    for better, worse in permutations(both, 2):
        ours, sign = difference(better, worse), -1 if better.unit.less else 1
        assert better.paper is not None and worse.paper is not None and ours  # noqa: PT018
        theirs = better.paper - worse.paper
        level += sign * theirs > 0 == ours.mean
        if sign * theirs > 0 > sign * ours.mean:
            apart = math.hypot(made.noise_of(better), made.noise_of(worse))
            kind = chance if not ours.clear else beyond if abs(theirs) > apart else close
            spread = "" if ours.error is None else f" ± {ours.error:.1f}"
            kinds[kind].append(f"{better.row} - {worse.row} ({theirs:+.1f}, here {ours.mean:+.1f}{spread})")
    turned, pairs = sum(map(len, kinds.values())), len(both) * (len(both) - 1) // 2
    if not turned:
        tied = f", but for {level} of {pairs} pairs that are equal here" if level else ""
        return [f"{column}: all {len(both)} rows stand in the paper's order{tied}."]
    said = f"{turned} of {pairs} pairs of rows stand in the other order than in the paper (± standard error)"
    return [f"{column}: {said}.", *(f"- {kind}: {_listed(found)}." for kind, found in kinds.items() if found)]


def _listed(pairs: Sequence[str]) -> str:
    more = len(pairs) - LISTED
    return "; ".join(pairs[:LISTED]) + (f"; and {more} more" if more > 0 else "")
