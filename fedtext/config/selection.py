"""Which metrics an experiment evaluates, and by which of them rounds and trials can be chosen."""

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

Validated: TypeAlias = Literal["Ag_val", "AUC_val", "perplexity_val"]  # what a round can be chosen by
Sorting: TypeAlias = Literal[
    "Ag_val", "Ap_val", "Local_val", "AUC_val", "perplexity_val",
    "Ag", "Ap", "Local", "Global", "AUC", "perplexity", "loss",
]  # fmt: skip


def evaluated_metrics(experiment: "Experiment") -> set[str]:
    """Return the names of the metrics on test texts and, if there are any, on validation texts (``..._val``).

    AUC needs two classes, which only the corpus knows. Ap is evaluated after the last round.
    """
    method, personalize = experiment.method, experiment.evaluation.personalize
    shared, tuned = "Ag" if method.complete else "Ap_0", list(personalize.variants()) if personalize else []
    if experiment.language:
        kinds = ("perplexity", "perplexity_p90", "top1", "top3")
        found = {kind + ("" if name == "Ag" else f"_{name}") for name in (shared, *tuned) for kind in kinds}
    else:
        found = {shared, "AUC" + shared[2:], *tuned}
    everybody = {"Global", "Global_geometric", "Local_p10"} if experiment.evaluation.union else set()
    found |= {"Local"} if everybody else set()
    return found | everybody | ({f"{name}_val" for name in found} if experiment.corpus.validation else set())


def threshold(metric: str, value: float) -> str:
    """Its name, after ``rounds_to_`` or ``bytes_to_``. Not 1e+06, which MLflow does not take."""
    return f"{metric}_{value:.12f}".rstrip("0").rstrip(".")
