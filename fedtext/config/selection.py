"""The metrics by which rounds and trials can be chosen."""

from typing import Literal, TypeAlias

Validated: TypeAlias = Literal["Ag_val", "AUC_val", "perplexity_val"]  # what a round can be chosen by
Sorting: TypeAlias = Literal[
    "Ag_val", "Ap_val", "Local_val", "AUC_val", "perplexity_val",
    "Ag", "Ap", "Local", "Global", "AUC", "perplexity", "loss",
]  # fmt: skip


def threshold(metric: str, value: float) -> str:
    """Its name, after ``rounds_to_`` or ``bytes_to_``. Not 1e+06, which MLflow does not take."""
    return f"{metric}_{value:.12f}".rstrip("0").rstrip(".")
