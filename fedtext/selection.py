"""Which round's model is the one, and when a figure was good enough: read off the rows of a run."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from fedtext.checkpoint import Row

Validated: TypeAlias = Literal["Ag_val", "AUC_val", "perplexity_val"]


def smaller_is_better(metric: str) -> bool:
    """Of losses and perplexities; of accuracies and areas more is better."""
    return metric == "loss" or metric.startswith("perplexity")


def best_round(history: Sequence[Row], metric: str) -> int:
    """The first round with the best value; 0 if none has any."""
    values = {row["round"]: row["metrics"][metric] for row in history if metric in row["metrics"]}
    values = {round_: value for round_, value in values.items() if not math.isnan(value)}
    return (min if smaller_is_better(metric) else max)(values, key=values.__getitem__, default=0)


def reached(history: Sequence[Row], thresholds: Mapping[Validated, Sequence[float]]) -> dict[str, float]:
    """Of the thresholds that the last row is the first to pass: after how many rounds, ``rounds_to_<metric>_<value>``,
    and bytes of all clients, ``bytes_to_...``."""
    found: dict[str, float] = {}
    *before, last = [row["metrics"] for row in history]
    for metric, values in thresholds.items():
        for value in values:

            def passes(metrics: Mapping[str, float], metric: str = metric, value: float = value) -> bool:
                if metric not in metrics:
                    return False
                return metrics[metric] <= value if smaller_is_better(metric) else metrics[metric] >= value

            if passes(last) and not any(map(passes, before)):
                spent = sum(metrics["bytes_up"] + metrics["bytes_down"] for metrics in [*before, last])
                name = f"{metric}_{value:f}".rstrip("0").rstrip(".")  # no 1e+06, which MLflow does not take
                found |= {f"rounds_to_{name}": float(len(history)), f"bytes_to_{name}": spent}
    return found
