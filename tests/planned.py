"""Cases and rows as a sweep makes them, for the tests of what is shown and recorded."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient

from dashboards.groups import Found, Group, metrics_of
from dashboards.names import logged
from dashboards.store import Store
from dashboards.trial import Outcome
from fedtext.config.experiment import Experiment
from fedtext.records import RoundRecord

START = 1_700_000_000.0
CLIENTS = ("books", "dvd")


@dataclass(frozen=True)
class Planned:
    """A case as a sweep plans it."""

    id: str
    label: str
    baseline: bool
    experiment: Experiment
    overrides: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def group(self) -> str:
        return self.id.partition("-seed")[0]


def experiment(method: Any = "kteps", rounds: int = 3, **changes: Any) -> Experiment:
    return Experiment.model_validate(
        {"name": "demo", "corpus": "demo", "method": method, "training": {"rounds": rounds}} | changes
    )


def kteps(number: int, lambda1: float, rounds: int = 3) -> Planned:
    planned = experiment({"name": "kteps", "lambda1": lambda1}, rounds, uplink=[{"gaussian": {"sigma": 0.01}}])
    return Planned(f"{number:02d}-kteps", f"lambda1={lambda1:g}", False, planned, {"method.lambda1": lambda1})


def row(round_: int, level: float = 0.7, last: bool = False, **metrics: float) -> RoundRecord:
    """A round like those a trial reports."""
    accuracy = level + 0.01 * round_
    clients = {name: {"Ag": accuracy + shift} for name, shift in zip(CLIENTS, (-0.05, 0.05), strict=True)}
    values = {"loss": 0.5 / round_, "bytes_up": 4e6, "bytes_down": 6e6, "clients_trained": 2.0, "round_seconds": 4.1}
    values |= {"Ag": accuracy} | ({"Ap": accuracy + 0.02, "Ap_val": accuracy} if last else {}) | metrics
    return RoundRecord(round_, START + 5 * round_, values, clients)


def rows(count: int, total: int = 3, level: float = 0.7) -> list[RoundRecord]:
    return [row(round_, level, last=round_ == total) for round_ in range(1, count + 1)]


def won(case: Planned, history: list[RoundRecord]) -> Found:
    """What the best case of a sweep comes to."""
    group = Group(case.group, (case,))
    return group, metrics_of(group, {case.id: Outcome("finished", tuple(history))})


def steps(client: MlflowClient, run_id: str, name: str) -> list[int]:
    return [point.step for point in client.get_metric_history(run_id, logged(name))]


def table_of(store: Store, run: str) -> Any:
    """The clients' table as MLflow's own reader gives it; it looks runs up at the process-wide address."""
    mlflow.set_tracking_uri(store.uri)
    try:
        return store.client().load_table("1", "clients.json", [run])
    finally:
        mlflow.set_tracking_uri(None)


def run_id(folder: Path) -> str:
    found = json.loads((folder / "tracking.json").read_text())["run_id"]
    assert isinstance(found, str)
    return found
