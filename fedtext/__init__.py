"""Federated learning on private text.

>>> import fedtext
>>> result = fedtext.run("demo.yaml", "training.rounds=3")
>>> result.metrics["Ag"], result.model.predict(["a superb kettle"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtext.api.model import Model
    from fedtext.api.parts import (
        list_aggregations,
        list_attacks,
        list_audits,
        list_corpora,
        list_mechanisms,
        list_methods,
        list_models,
    )
    from fedtext.api.predictions import NextWords, Prediction
    from fedtext.api.result import Result
    from fedtext.api.run import load, run
    from fedtext.config.experiment import Experiment
    from fedtext.errors import ClientError, UserError
    from fedtext.records import RoundRecord

# The module of each public name. Names are imported on first use, since importing torch takes time.
_PLACES = {
    "ClientError": "fedtext.errors",
    "Experiment": "fedtext.config.experiment",
    "Model": "fedtext.api.model",
    "NextWords": "fedtext.api.predictions",
    "Prediction": "fedtext.api.predictions",
    "Result": "fedtext.api.result",
    "RoundRecord": "fedtext.records",
    "UserError": "fedtext.errors",
    "list_aggregations": "fedtext.api.parts",
    "list_attacks": "fedtext.api.parts",
    "list_audits": "fedtext.api.parts",
    "list_corpora": "fedtext.api.parts",
    "list_mechanisms": "fedtext.api.parts",
    "list_methods": "fedtext.api.parts",
    "list_models": "fedtext.api.parts",
    "load": "fedtext.api.run",
    "run": "fedtext.api.run",
}
__all__ = [
    "ClientError",
    "Experiment",
    "Model",
    "NextWords",
    "Prediction",
    "Result",
    "RoundRecord",
    "UserError",
    "list_aggregations",
    "list_attacks",
    "list_audits",
    "list_corpora",
    "list_mechanisms",
    "list_methods",
    "list_models",
    "load",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'fedtext' has no attribute {name!r}")
    found = getattr(import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
