"""Sweeps on Ray, tracked in MLflow: the commands of ``platform`` as functions, for scripts and notebooks.

    from sweeps import sweep

    result = sweep("kteps.yaml", "training.rounds=3", data="data")
    print(result.best.label, result.to_pandas())

Names are imported on first use, since importing Ray takes a second.
"""

from importlib import import_module
from typing import Any

__all__ = ["SweepResult", "Trial", "load_model", "sweep"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sweeps' has no attribute {name!r}")
    found = getattr(import_module("sweeps.api"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
