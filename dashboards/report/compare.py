"""Comparisons of the rows of a report: the best of each metric, and differences paired by seed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dashboards.figures import Cell
from dashboards.groups import Spread
from dashboards.paired import LEVEL, Difference, difference, holm
from dashboards.report.collect import Row, Sweep
from dashboards.report.measures import Measure, equal, measure
from dashboards.table import UNIGRAM, has_column, spread
from fedtext.metrics import column_order, of_validation
from fedtext.metrics.wording import written


@dataclass(frozen=True)
class Paired:
    """The difference of a row and the reference in one measure.

    Args:
        row: The row.
        difference: The row less the reference, in the unit of the measure; its ``p`` is corrected for the
            number of tests (``paired``).
        seeds: Number of seeds that both have.
    """

    row: Row
    difference: Difference
    seeds: int


def measures(sweep: Sweep) -> list[Measure]:
    """Return the metrics of the tables, in the order of the final table: evaluations, attacks, epsilon, loss."""
    names = sorted((name for name in sweep.names() if UNIGRAM not in name), key=column_order)
    beside = [name for name in ("epsilon", "epsilon_lower", "loss") if name in names]
    shown = [name for name in names if has_column(name, sweep.metric) and written(name) and name not in beside]
    return [measure_of(sweep, name) for name in [*shown, *beside]]


def measure_of(sweep: Sweep, name: str) -> Measure:
    """Return a metric or cost. Of the one by which trials are sorted ``tune.mode`` says which direction is better."""
    of, less = measure(name), sweep.experiment.tune.direction == "min"
    return of if name != sweep.metric or of.unit.less == less else replace(of, unit=replace(of.unit, less=less))


def best_rows(rows: Sequence[Row], of: Measure) -> list[Row]:
    """Return the rows with the best mean of a measure; several if they are equal, none if no direction is better.

    Rows with a failed or missing seed are no candidates: their means would be biased.
    """
    whole = [(row, found) for row in rows if (found := row.spread(of.name)) and row.complete(of.name)]
    if not of.ranked or len(whole) < 2:
        return []
    first = (min if of.unit.less else max)(found.mean for _, found in whole)
    return [row for row, found in whole if equal(found.mean, first)]


def paired(rows: Sequence[Row], reference: Row, of: Measure, chosen: bool = False) -> list[Paired]:
    """Return the differences of all other rows and the reference.

    A reference that was chosen for its values differs by more than chance from the others even if all are equal. Its
    p-values are therefore corrected for all pairs that could have been tested.

    Args:
        rows: The rows.
        reference: The row that is subtracted.
        of: The measure.
        chosen: Whether the reference was chosen among these rows, as the best case of the space.
    """
    found = [one for row in rows if row is not reference and (one := _paired(row, reference, of))]
    tested = [one for one in found if one.difference.p is not None]
    pairs = _pairs([one.row for one in tested]) if chosen else None
    values = holm([one.difference.p for one in tested if one.difference.p is not None], pairs)
    corrected = {one.row.id: p for one, p in zip(tested, values, strict=True)}
    return [replace(one, difference=replace(one.difference, p=corrected.get(one.row.id))) for one in found]


def _pairs(others: Sequence[Row]) -> int:
    """Return the number of pairs of a case of the space with a case or a baseline, if these and one more case are all
    the rows: the winner could have been any case."""
    cases = 1 + sum(not row.baseline for row in others)
    return cases * (cases - 1) // 2 + cases * (1 + len(others) - cases)


def _paired(row: Row, reference: Row, of: Measure) -> Paired | None:
    mine, theirs = row.by_seed(of.name), reference.by_seed(of.name)
    seeds = [seed for seed in mine if seed in theirs]
    if not seeds:
        return None
    cells = [
        Cell(one.label, of.name, None, [of.unit.of(values[seed]) for seed in seeds], of.unit)
        for one, values in ((row, mine), (reference, theirs))
    ]
    found = difference(*cells)
    return Paired(row, found, len(seeds)) if found else None


def findings(sweep: Sweep) -> list[str]:
    """Return sentences on the best case of the space, and how far it is from the next one and from the baselines."""
    winner, of = sweep.winner, measure_of(sweep, sweep.metric)
    if winner is None:
        each = "with all of its seeds " if len(sweep.seeds) > 1 else ""
        return [f"No trial of the space has ended {each}with {sweep.metric}, so that nothing can be compared yet."]
    found = winner.spread(of.name)
    assert found is not None
    most = "lowest" if of.unit.less else "highest"
    seeds = f"mean ± standard deviation of {found.count} seeds" if found.count > 1 else "one seed"
    others = [row for row in sweep.rows if row is not winner and row.spread(of.name)]
    where = f"has the {most} {of.name} of the space" if len(sweep.rows) > 1 else f"reached {of.name}"
    said = [f"{winner.label} {where}: {told(found, of)} ({seeds})."]
    of_texts = sweep.metric.removesuffix("_val")
    if of_validation(sweep.metric) and (test := winner.spread(of_texts)):
        said.append(f"On test texts it has {of_texts} {told(test, measure(of_texts))}.")
    apart = {one.row.id: one for one in paired(sweep.rows, winner, of, chosen=True)}
    rivals = [row for row in others if not row.baseline and row.complete(of.name)]
    named = [*rivals[:1], *[row for row in others if row.baseline]]
    leads = [apart[row.id] for row in named if row.id in apart]
    spread_out = next((one for one in leads if one.difference.error is not None and one.difference.mean), None)
    said += [_sentence(one, of, explained=one is spread_out) for one in leads]
    if others and not apart:
        said.append("No other trial has its seed: there are no paired differences.")
    elif others and max(one.seeds for one in apart.values()) < 2:
        said.append("One seed: no spread is known and nothing can be tested.")
    return said


def told(found: Spread, of: Measure) -> str:
    """Return mean, deviation and unit: ``85.3 ± 0.4 %``."""
    return f"{spread(found, of.write)} {of.unit.name}".rstrip()


def _sentence(one: Paired, of: Measure, explained: bool) -> str:
    """Return the lead of the winner over a row, in words.

    Args:
        one: The difference of the row and the winner.
        of: The measure.
        explained: Whether to say that what is behind ± is a standard error: elsewhere it is a standard deviation.
    """
    lead, error, p = -one.difference.mean, one.difference.error, one.difference.p
    if lead == 0:
        return f"{one.row.name} is equal to it in {of.name}."
    unit = f"points of {of.name}" if of.unit.name == "%" else f"in {of.name}"
    side = "ahead of" if of.better(lead, 0.0) else "behind"
    size = of.shown(abs(lead)) if error is None else f"{of.shown(abs(lead))} ± {of.shown(error)}"
    text = f"It is {size} {unit} {side} {one.row.name}"
    aside = ["± standard error"] if explained else []
    if p is not None:
        text += "" if p < LEVEL else ": not significant"
        aside += [_p(p), f"{one.seeds} seeds"]
    return f"{text} ({', '.join(aside)})." if aside else f"{text}."


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.{3 if p < 0.1 else 2}f}"
