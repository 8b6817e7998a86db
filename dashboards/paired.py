"""Paired tests between the rows of a table, and the order of its rows compared with the paper's.

Under one seed all rows have the same texts and the same initial parameters, so that differences are taken within seeds.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from dashboards.figures import UNIGRAM, Cell, Reproduction, Unit, counted_rows

LEVEL = 0.05  # p-values below it are called significant
ROUNDING = 1e-12  # share of the compared values: a spread of their differences below it counts as none


@dataclass(frozen=True)
class Difference:
    """The difference of two rows.

    Args:
        mean: Its mean over seeds.
        error: The standard error of the mean; None for a single seed.
        p: The two-sided p-value of the paired t test. None where there is no test: for a single seed, and for
            differences that are all equal.
    """

    mean: float
    error: float | None
    p: float | None

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < LEVEL


def difference(one: Cell, other: Cell) -> Difference | None:
    """Return ``one`` minus ``other``, over the seeds that both were run with; None if some seed has no value."""
    if not (one.whole and other.whole):
        return None
    between = [a - b for a, b in zip(one.found, other.found, strict=False)]  # seeds count from 0
    mean, count = statistics.fmean(between), len(between)
    if count == 1:
        return Difference(mean, None, None)
    error = statistics.stdev(between) / math.sqrt(count)
    if error <= ROUNDING * max(abs(value) for value in (*one.found, *other.found)):
        return Difference(mean, 0.0, None)
    from scipy.special import stdtr  # here: few tables need it, and importing it takes time

    return Difference(mean, error, float(2 * stdtr(count - 1, -abs(mean) / error)))


def differs(cell: Cell, noise: float) -> bool:
    """Whether our mean is further from the paper's value than ``noise``, that of the paper's value, and the 95 %
    confidence interval of our mean explain."""
    if cell.paper is None or cell.ours is None or not cell.whole:
        return False
    interval = 0.0
    if cell.ours.deviation is not None:
        from scipy.special import stdtrit

        quantile = float(stdtrit(cell.ours.count - 1, 1 - LEVEL / 2))
        interval = quantile * cell.ours.deviation / math.sqrt(cell.ours.count)
    return abs(cell.ours.mean - cell.paper) > noise + interval


@dataclass
class Order:
    """The pairs of rows of a column that the paper orders, by their order in our results."""

    pairs: int = 0
    kept: int = 0  # in the paper's order here too
    kept_significant: int = 0
    equal: int = 0  # equal here
    beyond: list[str] = field(default_factory=list)  # inverted, significant, beyond the paper's own noise
    close: list[str] = field(default_factory=list)  # inverted, significant, within the noise of the paper's values
    within: list[str] = field(default_factory=list)  # inverted, not significant or untested

    @property
    def inverted(self) -> int:
        return len(self.beyond) + len(self.close) + len(self.within)


def compare_order(made: Reproduction, column: str) -> Order:
    """Sort the pairs of rows that the paper orders into those in its order and the inverted ones. Rows of different
    data are no pair."""
    both = [cell for cell in made.cells if cell.column == column and cell.paper is not None and cell.whole]
    found = Order()
    for one, other in combinations(both, 2):
        assert one.paper is not None and other.paper is not None  # noqa: PT018
        if one.paper == other.paper or not made.comparable(one.row, other.row):
            continue
        sign = -1 if one.unit.less else 1
        better, worse = (one, other) if sign * (one.paper - other.paper) > 0 else (other, one)
        ours = difference(better, worse)
        assert ours and better.paper is not None and worse.paper is not None  # noqa: PT018
        found.pairs += 1
        if ours.mean == 0:
            found.equal += 1
        elif sign * ours.mean > 0:
            found.kept += 1
            found.kept_significant += ours.significant
        else:
            apart = math.hypot(made.noise_of(better), made.noise_of(worse))
            theirs = better.paper - worse.paper
            kind = found.within if not ours.significant else found.beyond if abs(theirs) > apart else found.close
            kind.append(f"{better.row} - {worse.row} ({theirs:+.1f}, here {signed(ours)})")
    return found


def signed(ours: Difference) -> str:
    """Return ``-2.1 ± 0.1, p = 0.002``; for a single seed the difference alone."""
    return f"{ours.mean:+.1f}" + ("" if ours.error is None else f" ± {ours.error:.1f}, {p_value(ours)}")


def p_value(ours: Difference) -> str:
    """Format a p-value: ``p = 0.002``."""
    if ours.p is None:
        return "no test"
    return "p < 0.001" if ours.p < 0.001 else f"p = {ours.p:.{3 if ours.p < 0.1 else 2}f}"


def order(made: Reproduction, column: str) -> list[str]:
    """Return a sentence with the counts, then one for each kind of inverted pairs; empty if no rows are ordered."""
    found = compare_order(made, column)
    if not found.pairs:
        return []
    tested, equal = made.seeds > 1, f", {found.equal} equal here" if found.equal else ""
    significant = len(found.beyond) + len(found.close)
    kept = f"{found.kept} in the paper's order" + (f" ({found.kept_significant} significant)" if tested else "")
    inverted = f"{found.inverted} inverted"
    if found.inverted and tested:
        inverted += f" ({significant} significant, {len(found.within)} within noise)"
    said = f"{column}: of {found.pairs} pairs of rows that the paper orders, {kept}{equal}, {inverted}."
    unit = next(cell.unit for cell in made.cells if cell.column == column)
    within = "Inverted, within noise" if tested else "Inverted, of one seed: no test is possible"
    within += " or of a single common seed" if tested and made.fewest_seeds == 1 else ""
    kinds = {
        f"Inverted, significant, beyond the paper's own noise ({_noise(made, unit)})": found.beyond,
        "Inverted, significant, within the noise of two of the paper's values": found.close,
        within: found.within,
    }
    return [said, *(f"- {kind}: {'; '.join(pairs)}." for kind, pairs in kinds.items() if pairs)]


def _noise(made: Reproduction, unit: Unit) -> str:
    return f"{made.noise:g}% of each value" if unit.relative else f"{2**0.5 * made.noise:.1f} points of a difference"


def above_unigram(made: Reproduction) -> str:
    """Return a sentence on the language models whose perplexity is not below that of the unigram row of their corpus;
    empty if the table has no such row."""
    counted = [cell for cell in made.cells if cell.row.startswith(UNIGRAM) and cell.unit.name == "perplexity"]
    if not counted:
        return ""
    column = counted[0].column
    others = [cell for cell in made.cells if cell.column == column and not cell.row.startswith(UNIGRAM) and cell.whole]
    rows = list(dict.fromkeys(cell.row for cell in made.cells if not cell.row.startswith(UNIGRAM)))
    least = {
        row: cell.ours.mean
        for cell in counted
        if cell.column == column and cell.ours
        for row in counted_rows(cell.row, rows)
    }
    others = [cell for cell in others if cell.row in least]
    named = [cell.row for cell in others if cell.ours and cell.ours.mean >= least[cell.row]]
    if not named:
        return f"All {len(others)} models are below the unigram row in {column}."
    which = f"All {len(named)} models" if len(named) == len(others) else f"{len(named)} of {len(others)} models"
    listed = "" if len(named) == len(others) else f" ({', '.join(named)})"
    return (
        f"{which}{listed} are NOT BELOW THE UNIGRAM ROW in {column}: they have not been shown to use context, and "
        "their differences are no evidence about the methods."
    )


def paired_rows(made: Reproduction, columns: Sequence[str]) -> list[list[str]]:
    """Return a row for each pair of ``compare``, but for rows of different data: in each column the paired difference,
    bold if significant, and with several seeds its p-value."""
    found = {(cell.row, cell.column): cell for cell in made.cells}
    return [
        [
            f"{one} - {other}",
            *(text for c in columns for text in _pair(made, found.get((one, c)), found.get((other, c)))),
        ]
        for one, other in made.compare
        if made.comparable(one, other)
    ]


def _pair(made: Reproduction, one: Cell | None, other: Cell | None) -> list[str]:
    """Return the texts of one pair in one column."""
    ours = difference(one, other) if one and other else None
    if ours is None:
        text = one.unit.none if one and other and one.seeds and other.seeds else ""
    else:
        text = f"{ours.mean:+.1f}" + ("" if ours.error is None else f" ± {ours.error:.1f}")
        text = f"**{text}**" if ours.significant else text
    return [text] if made.seeds < 2 else [text, "" if ours is None else p_value(ours).removeprefix("p ").lstrip("= ")]


def holm(values: Sequence[float], tests: int | None = None) -> list[float]:
    """Return p-values corrected for a number of tests (Holm 1979): the chance that one or more of the tests of true
    null hypotheses falls below a level is at most this level.

    Args:
        values: The p-values.
        tests: Number of tests from which these were chosen; None: these are all.
    """
    corrected, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = corrected[place] = max(least, min(1.0, ((tests or len(values)) - rank) * values[place]))
    return corrected
