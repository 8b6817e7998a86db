"""Trials of one case under several seeds, and mean and deviation of their metrics."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.trial import Case, Outcome, title
from fedtext.server.last import last_values


@dataclass(frozen=True)
class Group:
    """The trials of one case, which differ in their seeds only. Most groups have one trial."""

    id: str
    cases: tuple[Case, ...]

    @property
    def case(self) -> Case:
        """The first of the cases, for what they have in common."""
        return self.cases[0]

    @property
    def title(self) -> str:
        return title(self.case, group=True)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of ``count`` values. The deviation of a single value is None."""

    mean: float
    deviation: float | None
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


Found = tuple[Group, Mapping[str, Spread]]  # a group and its metrics


def groups(cases: Sequence[Case]) -> list[Group]:
    """Return the groups of the cases, in the order of their first cases."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.group, []).append(case)
    return [Group(name, tuple(members)) for name, members in found.items()]


def metrics_of(group: Group, outcomes: Mapping[str, Outcome]) -> dict[str, Spread]:
    """Return the spread of each metric over seeds, from ``last_values`` of each trial that has not failed. Values that
    are infinite or NaN are left out."""
    ended = [outcomes[case.id] for case in group.cases if case.id in outcomes]
    last = [last_values(outcome.rows) for outcome in ended if outcome.status != "failed"]
    names = dict.fromkeys(name for values in last for name in values)
    found = {name: [v[name] for v in last if name in v and math.isfinite(v[name])] for name in names}
    return {name: Spread.of(values) for name, values in found.items() if values}
