"""The metrics that parts of an experiment report: audits, mechanisms and aggregations, which may be a plug-in's."""

import posixpath
import re
from collections.abc import Mapping
from functools import lru_cache
from numbers import Real

from fedtext.metrics.table import METRICS

_OWN = tuple(METRICS)  # without those that plug-ins append
_OF_UPDATES = ("loss", "samples", "seconds", "cpu_seconds", "gpu_seconds")  # beside a mechanism's, of a local update
_FITTING = re.compile(r"[\w./ -]{1,200}")  # MLflow accepts no other characters, and no longer names


@lru_cache(maxsize=4096)
def is_taken(name: str) -> bool:
    """Whether this is the name of a metric that fedtext computes itself, which another value would replace."""
    if name in _OF_UPDATES or name.startswith("loss_"):
        return True
    return any(metric.matches(name) and not metric.by_parts for metric in _OWN)


def name_problem(name: object) -> str:
    """Return why results cannot have a metric of this name; empty if they can."""
    if not isinstance(name, str) or not _FITTING.fullmatch(name) or posixpath.normpath(name) != name:
        return f"metric {name!r}, a name that MLflow does not accept: use letters, digits and _"
    return ""


def problem_of(returned: object) -> str:
    """Return what is wrong with the metrics that a part reports; empty if nothing is.

    Args:
        returned: What it returned: numbers by name, not necessarily of Python's types.
    """
    if not isinstance(returned, Mapping):
        return f"{repr(returned)[:60]}, and not numbers by name"
    for name, value in returned.items():
        if problem := name_problem(name):
            return problem
        if not isinstance(value, Real):
            return f"metric {name} as {type(value).__name__}, and not as a number"
        if is_taken(name):
            return f"metric {name}, which fedtext computes itself: choose another name"
    return ""


def as_floats(returned: Mapping[str, float]) -> dict[str, float]:
    """Return metrics as Python's numbers: those of numpy cannot be written as JSON."""
    return {name: float(value) for name, value in returned.items()}
