"""The metrics by which rounds and trials can be selected."""

from typing import Literal, TypeAlias

Validated: TypeAlias = Literal["Ag_val", "AUC_val", "perplexity_val", "bits_per_byte_val"]  # that can select a round
SHARES = ("Ag_val", "AUC_val")  # between 0 and 1
Sorting: TypeAlias = Literal[
    "Ag_val", "Ap_val", "Local_val", "AUC_val", "perplexity_val", "bits_per_byte_val",
    "Ag", "Ap", "Local", "Global", "AUC", "perplexity", "bits_per_byte", "loss",
]  # fmt: skip
BEST_ROUND = "_best_round"  # end of the names of metrics whose round test texts choose, which select nothing


def threshold(metric: str, value: float) -> str:
    """Return the name of a threshold, after ``rounds_to_``, ``bytes_to_`` or ``simulated_seconds_to_``."""
    return f"{metric}_{decimal(value)}"


def decimal(value: float) -> str:
    """Return a number for the name of a metric, without an exponent: MLflow does not accept 1e+06 in it."""
    return f"{value:.12f}".rstrip("0").rstrip(".")
