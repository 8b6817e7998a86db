"""Descriptions and ends of runs, as MLflow gets them."""

import time
from typing import Any

import yaml

from dashboards.groups import Found
from dashboards.mirror import Description, End
from dashboards.store import redacted
from dashboards.trial import RunStatus


def described(
    name: str, dump: dict[str, Any], params: dict[str, str], tags: dict[str, str], at: float | None = None
) -> Description:
    text = yaml.safe_dump(dump, sort_keys=False, allow_unicode=True)
    return Description(name, at or time.time(), tags, params, resolved=redacted(text))


def ended(status: RunStatus, when: float, error: str, stopped: str) -> End:
    return End(status, when, {name: text for name, text in (("error", error), ("stopped", stopped)) if text})


def summed_up(status: RunStatus, now: float, metric: str, best: Found | None) -> End:
    """The end of a sweep: ``best.case``, and that case's value of the metric as ``best.<metric>``.

    It has a name of its own: under the usual one the parent would stand among its trials a second time.
    """
    if best is None:
        return End(status, now)
    group, values = best
    metrics = {f"best.{metric}": values[metric].mean} if metric in values else {}
    return End(status, now, {"best.case": group.id, "best.label": group.case.label}, metrics)
