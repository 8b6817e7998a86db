"""The Pareto front of a multi-objective search, as a table of a report."""

from dashboards import pareto
from dashboards.report.collect import Sweep
from dashboards.report.contents import value
from dashboards.report.measures import measure
from dashboards.report.tables import Field, Table


def front(sweep: Sweep) -> Table | None:
    """Return a row for each case on the Pareto front of ``tune.metrics``; None if the sweep has one metric."""
    tune = sweep.experiment.tune
    if not tune.metrics:
        return None
    found = {group.id for group, _ in pareto.front(sweep.cases, sweep.outcomes, tune.objectives)}
    of = [measure(name) for name in tune.objectives]
    rows = [
        [Field(str(place), {"": float(place)}), Field(row.name), *(value(row.spread(one.name), one) for one in of)]
        for place, row in enumerate(sweep.rows, 1)
        if row.id in found
    ]
    if not rows:
        return None
    ways = ", ".join(f"{name} ({'largest' if mode == 'max' else 'smallest'})" for name, mode in tune.objectives.items())
    said = [
        f"The cases of the space that no other one dominates: none is at least as good in all of {ways}, and better "
        "in one. Means over seeds are compared; baselines are not among them."
    ]
    return Table("front", f"{sweep.name}: Pareto front.", ["#", "method", *(one.head for one in of)], rows, said)
