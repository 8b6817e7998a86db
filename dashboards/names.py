"""Names of metrics and parameters in MLflow, chosen for its pages.

MLflow groups charts by what stands before the slash of a metric's name, and sorts groups and charts by name. Columns of
its tables show about twelve characters.
"""

from collections.abc import Iterable, Mapping

from dashboards.trial import flatten
from fedtext.metrics import Kind, find

# In the order of the alphabet, which is also that of what matters.
GROUPS: Mapping[Kind, str] = {
    "evaluation": "eval",
    "attack": "leakage",
    "training": "loss",
    "privacy": "privacy",
    "server": "server",
    "cost": "time",
    "traffic": "traffic",
}
DEVIATION = ".std"
FINE_TUNING = "fine_tuning/"  # accuracies by step of fine-tuning
SYSTEM = "system/"  # MLflow's own, of a machine
OTHER_STEPS = (FINE_TUNING, SYSTEM)  # metrics whose steps are no rounds


def logged(name: str) -> str:
    """Return the name of a metric in MLflow: ``Ap_val`` -> ``eval/Ap_val``. Metrics of sweeps and of plug-ins keep
    their names."""
    metric = find(name.removesuffix(DEVIATION))
    group = GROUPS.get(metric.kind) if metric else None
    return f"{group}/{name}" if group else name


def short_keys(keys: Iterable[str], experiment: Mapping[str, object]) -> dict[str, str]:
    """Return a short name of each key: its last words, as many as tell it from all other keys of the experiment.

    >>> short_keys(["method.lambda1", "evaluation.every"], {"evaluation": {"every": 1}, "checkpoint": {"every": 1}})
    {'method.lambda1': 'lambda1', 'evaluation.every': 'evaluation.every'}
    """
    everything = set(flatten(experiment)) | set(keys := list(keys))
    return {key: _shortest(key, everything - {key}) for key in keys}


def _shortest(key: str, others: Iterable[str]) -> str:
    words, taken = key.split("."), [other.split(".") for other in others]
    for count in range(1, len(words)):
        if all(other[-count:] != words[-count:] for other in taken):
            return ".".join(words[-count:])
    return key
