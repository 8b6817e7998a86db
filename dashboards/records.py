"""Conversion to MLflow's entities: parameters, tags, batches of metric points, the table of clients."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mlflow.entities as ml
from mlflow import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_RUN_NOTE

from dashboards.names import FINE_TUNING, logged
from dashboards.trial import VALUE_LENGTH, Dataset, one_line
from fedtext.metrics import column_order
from fedtext.records import RoundRecord

PARAMS_PER_BATCH, METRICS_PER_BATCH = 100, 1000  # MLflow refuses larger requests
TAG_LENGTH, DIGEST_LENGTH = 5000, 36  # characters that every MLflow server takes
TABLE = "clients.json"

Cells = dict[tuple[int, str], dict[str, Any]]  # (round, client) -> the client's metrics


def run_params(params: Mapping[str, str]) -> Iterator[list[ml.Param]]:
    """Yield parameters in batches of the size that MLflow accepts."""
    entities = [ml.Param(key, value) for key, value in params.items()]
    for first in range(0, len(entities), PARAMS_PER_BATCH):
        yield entities[first : first + PARAMS_PER_BATCH]


def run_tags(tags: Mapping[str, str]) -> list[ml.RunTag]:
    """Return tags as MLflow accepts them: each on one line, except for the description."""
    return [
        ml.RunTag(key, (str(value) if key == MLFLOW_RUN_NOTE else one_line(str(value)))[:TAG_LENGTH])
        for key, value in tags.items()
    ]


def run_dataset(dataset: Dataset) -> ml.DatasetInput:
    """Return the dataset as an input for training. MLflow does not validate sources of type ``code``."""
    entity = ml.Dataset(
        name=dataset.name[:VALUE_LENGTH],
        digest=dataset.digest[:DIGEST_LENGTH],
        source_type="code",
        source=json.dumps({"tags": {"mlflow.source.name": dataset.source}}),
        profile=json.dumps(dataset.profile) if dataset.profile else None,
    )
    return ml.DatasetInput(entity, [ml.InputTag(MLFLOW_DATASET_CONTEXT, "training")])


def metric_batches(records: Iterable[RoundRecord], tuned: bool = False) -> Iterator[tuple[list[int], list[ml.Metric]]]:
    """Yield batches of at most ``METRICS_PER_BATCH`` points, each with the rounds that are complete after it.

    A record is split only if it alone is larger. The time of a point is that of its record, so that a record that is
    sent twice gives the same points. A run that is made longer has curves of fine-tuning after each of its last rounds:
    the later ones have the round in their names, since a step of one metric has one value.

    Args:
        records: The records.
        tuned: Whether MLflow has curves of fine-tuning of an earlier round.
    """
    rounds: list[int] = []
    batch: list[ml.Metric] = []
    for record in records:
        moment, step = round(1000 * record.time), record.round
        # MLflow keeps this order, and its compare page begins with the first metric: accuracies, not seconds.
        metrics = sorted(record.metrics.items(), key=lambda item: column_order(item[0]))
        points = [ml.Metric(logged(name), float(value), moment, step) for name, value in metrics if value is not None]
        for name, curve in record.curves.items():
            called = f"{FINE_TUNING}{name}{f'_round_{step}' if tuned else ''}"
            points += [ml.Metric(called, value, moment, number) for number, value in curve.items()]
        tuned = tuned or bool(record.curves)
        if batch and len(batch) + len(points) > METRICS_PER_BATCH:
            yield rounds, batch
            rounds, batch = [], []
        while len(points) > METRICS_PER_BATCH:
            yield [], points[:METRICS_PER_BATCH]
            points = points[METRICS_PER_BATCH:]
        rounds.append(step)
        batch.extend(points)
    if rounds:
        yield rounds, batch


def table_text(cells: Cells) -> str:
    """Return the content of the file that ``mlflow.log_table`` would write, sorted by round and client."""
    names = list(dict.fromkeys(name for cell in cells.values() for name in cell))
    data = [
        [client, round_, *(_finite(cell.get(name)) for name in names)]
        for (round_, client), cell in sorted(cells.items())
    ]
    return json.dumps({"columns": ["client", "round", *names], "data": data})


def read_table(client: MlflowClient, run_id: str) -> Cells:
    """Read the table of clients from MLflow; empty if there is none."""
    if TABLE not in [item.path for item in client.list_artifacts(run_id)]:
        return {}
    table = json.loads(Path(client.download_artifacts(run_id, TABLE)).read_text())
    records = [dict(zip(table["columns"], values, strict=True)) for values in table["data"]]
    return {(record.pop("round"), record.pop("client")): record for record in records}


def _finite(value: Any) -> Any:
    """Return None for NaN and infinity, which JSON does not have: a browser would refuse the whole table."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
