"""The Pareto front of a multi-objective search."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from dashboards.groups import Found, Group, Spread, groups, metrics_of
from dashboards.table import Mode, spread
from dashboards.trial import Case, Outcome
from fedtext.metrics import find, of_test
from fedtext.metrics.wording import data_size, decimal, format_epsilon, written

DIGITS = 9  # of values that are compared


def front(cases: Sequence[Case], outcomes: Mapping[str, Outcome], objectives: Mapping[str, Mode]) -> list[Found]:
    """Return the cases of the space that no other one beats: that is as good in every objective and better in one.

    Cases that lack an objective, or have a failed or missing seed, are no candidates. Means over seeds are compared.

    Args:
        cases: The cases.
        outcomes: The outcomes, by id of the case.
        objectives: The metrics and their directions.

    Returns:
        The cases with their metrics, the best of the first objective first.
    """
    found = [(group, metrics_of(group, outcomes)) for group in candidates(cases, outcomes, objectives)]
    signs = {name: 1 if mode == "max" else -1 for name, mode in objectives.items()}
    scored = [
        ([sign * rounded(values[name].mean) for name, sign in signs.items()], (group, values))
        for group, values in found
    ]
    kept = [(mine, one) for mine, one in scored if not any(_beats(theirs, mine) for theirs, _ in scored)]
    return [one for _, one in sorted(kept, key=lambda pair: pair[0], reverse=True)]


def candidates(cases: Sequence[Case], outcomes: Mapping[str, Outcome], objectives: Mapping[str, Mode]) -> list[Group]:
    """Return the cases of the space that have every objective under every seed.

    Args:
        cases, outcomes, objectives: As of ``front``.
    """
    kept = []
    for group in groups(cases):
        values, count = metrics_of(group, outcomes), len(group.cases)
        if not group.case.baseline and all(name in values and values[name].count == count for name in objectives):
            kept.append(group)
    return kept


def rounded(value: float) -> float:
    """Return a value without the last digits, in which means of the same numbers differ by rounding alone."""
    return float(f"{value:.{DIGITS}g}")


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True)) and any(a > b for a, b in zip(one, other, strict=True))


def print_front(
    cases: Sequence[Case], outcomes: Mapping[str, Outcome], objectives: Mapping[str, Mode], stream: TextIO | None = None
) -> None:
    """Print the Pareto front, a line for each of its cases.

    Args:
        cases, outcomes, objectives: As of ``front``.
        stream: Where to print; None: the standard output.
    """
    stream = stream or sys.stdout
    found, there = front(cases, outcomes, objectives), candidates(cases, outcomes, objectives)
    names = ", ".join(f"{name} ({mode})" for name, mode in objectives.items())
    if not there:
        stream.write(f"Pareto front of {names}: no trial of the space has all of them.\n")
        return
    stream.write(
        f"Pareto front of {names}: {len(found)} of {len(there)} cases, which no other one dominates (at least as good "
        "in all, and better in one)\n"
    )
    titles = [group.title for group, _ in found]
    columns = [[f"{name} {told(name, values[name])}" for _, values in found] for name in objectives]
    for line in zip(*([titles, *columns]), strict=True):
        cells = [text.ljust(max(map(len, column))) for text, column in zip(line, [titles, *columns], strict=True)]
        stream.write(f"  {'  '.join(cells).rstrip()}\n")
    if tested := [name for name in objectives if of_test(name)]:
        stream.write(
            f"Note: {tested[0]} is evaluated on the test split, so choosing from this front is selection on the test "
            "split: set aside validation data (corpus.validation) and search by metrics in _val.\n"
        )
    stream.flush()


def told(name: str, value: Spread) -> str:
    """Return the value of a metric as text, with its deviation over seeds."""
    metric = find(name)
    units: dict[str, Callable[[float], str]] = {"bytes": data_size, "epsilon": format_epsilon, "nats": decimal}
    plain = units.get(metric.unit if metric else "", lambda number: f"{number:.4g}")  # bits have one of their own
    return spread(value, written(name) or plain)
