"""Plug-ins, and an experiment that uses one."""

from pathlib import Path
from typing import Any

import yaml

MINE = """
from typing import Literal

from pydantic import Field

from fedtext.methods import FedAvg


class Mine(FedAvg):
    \"\"\"FedAvg by another name.\"\"\"

    name: Literal["mine"] = "mine"
    beta: float = Field(0.5, ge=0, description="what nothing reads")

    def loss(self, model, received, batch):
        terms = super().loss(model, received, batch)
        return terms | {"size": (model(batch) ** 2).mean()}
"""
HALVED = """
from typing import Literal

from fedtext.mechanisms.base import Mechanism


class Halved(Mechanism):
    \"\"\"Half of an update.\"\"\"

    name: Literal["halved"] = "halved"

    def apply(self, delta, received, rng):
        return {name: tensor / 2 for name, tensor in delta.items()}
"""
MIDDLE = """
from typing import Literal

from fedtext.aggregations import IndividualAggregation


class Middle(IndividualAggregation):
    \"\"\"The first one.\"\"\"

    name: Literal["middle"] = "middle"

    def aggregate(self, state, updates, weight):
        return state, {}
"""
AUDIT = """
from typing import Literal

from fedtext.audits.base import Audit, Observation


class Seen(Observation):
    def metrics(self, shared):
        return METRICS

    def report(self, shared, words):
        return REPORT


class Looks(Audit):
    \"\"\"It looks.\"\"\"

    name: Literal["looks"] = "looks"
    metrics = ("seen",)

    def observe(self, local, words):
        return Seen()
"""
CONTENT: dict[str, Any] = {
    "name": "plugged",
    "corpus": {"name": "demo", "max_length": 9},
    "model": {"embedding": {"dim": 5}, "hidden": 4, "head": {"hidden": 3}},
    "method": "mine",
    "training": {"rounds": 1},
    "evaluation": {"personalize": None},
}


def write(folder: Path, source: str = MINE, name: str = "mine.py", **changes: Any) -> Path:
    """A plug-in, and an experiment beside it that lists it."""
    (folder / name).write_text(source)
    file = folder / "plugged.yaml"
    file.write_text(yaml.safe_dump(CONTENT | {"plugins": [name]} | changes))
    return file
