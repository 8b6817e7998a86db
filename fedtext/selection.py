"""Which figures an experiment reads, which round's model is the one, and when a figure was good enough."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from fedtext.checkpoint import Row
from fedtext.metrics import smaller_is_better

if TYPE_CHECKING:
    from fedtext.experiment import Experiment

Validated: TypeAlias = Literal["Ag_val", "AUC_val", "perplexity_val"]  # what a round can be chosen by
Sorting: TypeAlias = Literal[
    "Ag_val", "Ap_val", "Local_val", "AUC_val", "perplexity_val",
    "Ag", "Ap", "Local", "Global", "AUC", "perplexity", "loss",
]  # fmt: skip


def figures(experiment: "Experiment") -> set[str]:
    """The names of what is read of clients' test texts and, if there are some, of validation texts (``..._val``); AUC
    is there only of two classes, which a corpus has or has not. Ap is read with the last round."""
    method, personalize = experiment.method, experiment.evaluation.personalize
    shared, tuned = "Ag" if method.complete else "Ap_0", list(personalize.readings()) if personalize else []
    if experiment.language:
        kinds = ("perplexity", "perplexity_p90", "top1", "top3")
        found = {kind + ("" if name == "Ag" else f"_{name}") for name in (shared, *tuned) for kind in kinds}
    else:
        found = {shared, "AUC" + shared[2:], *tuned}
    everybody = {"Global", "Global_geometric", "Local_p10"} if experiment.evaluation.union else set()
    found |= {"Local"} if everybody else set()
    return found | everybody | ({f"{name}_val" for name in found} if experiment.corpus.validation else set())


def best_round(history: Sequence[Row], metric: str) -> int:
    """The first round with the best value; 0 if none has any."""
    values = {row["round"]: row["metrics"][metric] for row in history if metric in row["metrics"]}
    values = {round_: value for round_, value in values.items() if not math.isnan(value)}
    return (min if smaller_is_better(metric) else max)(values, key=values.__getitem__, default=0)


def threshold(metric: str, value: float) -> str:
    """Its name, after ``rounds_to_`` or ``bytes_to_``. Not 1e+06, which MLflow does not take."""
    return f"{metric}_{value:.12f}".rstrip("0").rstrip(".")


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
                name = threshold(metric, value)
                found |= {f"rounds_to_{name}": float(len(history)), f"bytes_to_{name}": last["bytes_total"]}
    return found
