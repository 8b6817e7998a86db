"""Metrics: name, unit, direction, split, when they are computed, and their meaning, in one table."""

from collections.abc import Iterable
from functools import lru_cache

from fedtext.metrics.metric import ATTACKED, EVALUATED, LATE, Kind, Metric, Unit, When
from fedtext.metrics.table import METRICS

__all__ = [
    "ATTACKED",
    "EVALUATED",
    "LATE",
    "METRICS",
    "Kind",
    "Metric",
    "Unit",
    "When",
    "column_order",
    "find",
    "legend",
    "meaning",
    "of_evaluated_rounds",
    "of_test",
    "of_validation",
    "smaller_is_better",
]


@lru_cache(maxsize=4096)
def find(name: str) -> Metric | None:
    """Return the metric that is logged as ``name``; None if there is none."""
    return next((metric for metric in METRICS if metric.matches(name)), None)


def of_validation(name: str) -> bool:
    """Whether this is a metric of validation texts."""
    metric = find(name)
    return metric is not None and metric.validation and name.endswith("_val")


def of_evaluated_rounds(name: str) -> bool:
    """Whether this is a metric of every evaluated round."""
    metric = find(name)
    return metric is not None and metric.when == EVALUATED


def of_test(name: str) -> bool:
    """Whether this is a metric of test texts."""
    metric = find(name)
    return metric is not None and metric.split == "test" and not of_validation(name)


def smaller_is_better(name: str) -> bool:
    """Whether smaller values of the metric are better, as of losses and perplexities."""
    metric = find(name)
    return metric is not None and metric.better == "smaller"


def column_order(name: str) -> tuple[bool, bool, int]:
    """Return the sort key of a column: in the order of METRICS, but evaluations first, with validation after test."""
    metric = find(name)
    if metric is None:
        return True, False, len(METRICS)
    return metric.kind != "evaluation", of_validation(name), METRICS.index(metric)


def meaning(name: str) -> str:
    """Return the summary of a metric; empty if it is not known."""
    metric = find(name)
    if metric is None:
        return ""
    if of_validation(name):
        return f"{name.removesuffix('_val')} of validation texts"
    return metric.summary


def legend(names: Iterable[str]) -> list[str]:
    """Return a line for each known metric of ``names``, in their order. A metric of validation texts has the line of
    that of test texts."""
    named = list(names)
    known = {name.removesuffix("_val") if of_validation(name) else name: find(name) for name in named}
    lines = [f"{name}: {metric.summary}" for name, metric in known.items() if metric is not None]
    return [*lines, *(["..._val: the same of validation texts"] if any(map(of_validation, named)) else [])]
