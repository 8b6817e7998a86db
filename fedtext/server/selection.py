"""Selection of the best round, and the rounds after which metrics reach thresholds."""

import math
from collections.abc import Mapping, Sequence

from fedtext.config.selection import Validated, threshold
from fedtext.metrics import smaller_is_better
from fedtext.records import RoundRecord


def best_round(history: Sequence[RoundRecord], metric: str) -> int:
    """Return the first round with the best value of a metric; 0 if no round has the metric."""
    values = {record.round: record.metrics[metric] for record in history if metric in record.metrics}
    values = {round_: value for round_, value in values.items() if not math.isnan(value)}
    return (min if smaller_is_better(metric) else max)(values, key=values.__getitem__, default=0)


def reached(history: Sequence[RoundRecord], thresholds: Mapping[Validated, Sequence[float]]) -> dict[str, float]:
    """Return metrics for the thresholds that the last record is the first to reach.

    They are ``rounds_to_<metric>_<value>``, the number of rounds, and the bytes of all clients and the simulated time
    until then: ``bytes_to_...`` and, with ``participation.pace``, ``simulated_seconds_to_...``.
    """
    found: dict[str, float] = {}
    *before, last = [record.metrics for record in history]
    for metric, values in thresholds.items():
        for value in values:

            def passes(metrics: Mapping[str, float], metric: str = metric, value: float = value) -> bool:
                if metric not in metrics:
                    return False
                return metrics[metric] <= value if smaller_is_better(metric) else metrics[metric] >= value

            if passes(last) and not any(map(passes, before)):
                name = threshold(metric, value)
                found |= {f"rounds_to_{name}": float(len(history)), f"bytes_to_{name}": last["bytes_total"]}
                if "simulated_seconds_total" in last:
                    found[f"simulated_seconds_to_{name}"] = last["simulated_seconds_total"]
    return found
