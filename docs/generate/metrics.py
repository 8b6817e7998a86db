"""The page of all metrics."""

from docs.generate.markdown import joined, prose, table
from fedtext.metrics import METRICS, Metric

HEADS = ("metric", "meaning", "unit, better values", "texts, rounds")


def page() -> str:
    """Return the page of all metrics, by what they describe."""
    parts = [
        "# Metrics",
        "Every metric of a round, a run or a sweep, as it is named in MLflow, in records and in tables. Fractions are "
        "shown in percent, and are from 0 to 1 in MLflow and files. With validation texts, metrics marked with \\* are "
        "also computed on these, as `NAME_val`. In attacks, the better direction is that of the clients. Placeholders "
        "are in angle brackets.",
        "This page is written from the table of metrics by `python -m docs`. `fedtext --keys metrics` shows the same.",
    ]
    for kind in dict.fromkeys(metric.kind for metric in METRICS):
        rows = [_row(metric) for metric in METRICS if metric.kind == kind]
        parts += [f"## {kind.capitalize()}", table(HEADS, rows)]
    return joined(parts)


def _row(metric: Metric) -> list[str]:
    better = "" if metric.better == "neither" else metric.better
    split = "" if metric.split == "none" else metric.split
    name = f"`{metric.name}`" + ("\\*" if metric.validation else "")
    meaning = prose(f"{metric.summary}. {metric.details}".strip())
    return [name, meaning, _listed(metric.unit, better), _listed(split, metric.when)]


def _listed(*parts: str) -> str:
    return ", ".join(filter(None, parts))
