"""What fedtext knows, in the forms MLflow takes: parameters, tags, batches of metric points, the table of clients."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mlflow.entities as ml
from mlflow import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_RUN_NOTE

from dashboards.trial import VALUE_LENGTH, Dataset, one_line
from fedtext.metrics import column_order
from fedtext.records import RoundRecord

PARAMS_PER_BATCH, METRICS_PER_BATCH = 100, 1000  # MLflow refuses larger requests
TAG_LENGTH, DIGEST_LENGTH = 5000, 36  # characters that every MLflow server takes
TABLE = "clients.json"

Cells = dict[tuple[int, str], dict[str, Any]]  # (round, client) -> the client's metrics


def run_params(params: Mapping[str, str]) -> Iterator[list[ml.Param]]:
    """Parameters in requests that MLflow takes."""
    entities = [ml.Param(key, value) for key, value in params.items()]
    for first in range(0, len(entities), PARAMS_PER_BATCH):
        yield entities[first : first + PARAMS_PER_BATCH]


def run_tags(tags: Mapping[str, str]) -> list[ml.RunTag]:
    """Tags as MLflow takes them, on one line each but for the description."""
    return [
        ml.RunTag(key, (str(value) if key == MLFLOW_RUN_NOTE else one_line(str(value)))[:TAG_LENGTH])
        for key, value in tags.items()
    ]


def run_dataset(dataset: Dataset) -> ml.DatasetInput:
    """The dataset as an input for training. ``code`` is the kind of source of which MLflow asks nothing."""
    entity = ml.Dataset(
        name=dataset.name[:VALUE_LENGTH],
        digest=dataset.digest[:DIGEST_LENGTH],
        source_type="code",
        source=json.dumps({"tags": {"mlflow.source.name": dataset.source}}),
        profile=json.dumps(dataset.profile) if dataset.profile else None,
    )
    return ml.DatasetInput(entity, [ml.InputTag(MLFLOW_DATASET_CONTEXT, "training")])


def metric_batches(records: Iterable[RoundRecord]) -> Iterator[tuple[list[int], list[ml.Metric]]]:
    """Requests of at most ``METRICS_PER_BATCH`` points, each with the rounds that are complete after it.

    A record is split only if it alone is larger. The time of a point is the record's, so that the same record sent
    twice is the same points.
    """
    rounds: list[int] = []
    batch: list[ml.Metric] = []
    for record in records:
        moment, step = round(1000 * record.time), record.round
        # MLflow keeps this order, and its compare page begins with the first metric: accuracies, not seconds.
        metrics = sorted(record.metrics.items(), key=lambda item: column_order(item[0]))
        points = [ml.Metric(name, float(value), moment, step) for name, value in metrics if value is not None]
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
    """The content of the file that ``mlflow.log_table`` would leave, sorted by round and client."""
    names = list(dict.fromkeys(name for cell in cells.values() for name in cell))
    data = [
        [client, round_, *(_finite(cell.get(name)) for name in names)]
        for (round_, client), cell in sorted(cells.items())
    ]
    return json.dumps({"columns": ["client", "round", *names], "data": data})


def read_table(client: MlflowClient, run_id: str) -> Cells:
    """The table that stands in MLflow; empty if there is none."""
    if TABLE not in [item.path for item in client.list_artifacts(run_id)]:
        return {}
    table = json.loads(Path(client.download_artifacts(run_id, TABLE)).read_text())
    records = [dict(zip(table["columns"], values, strict=True)) for values in table["data"]]
    return {(record.pop("round"), record.pop("client")): record for record in records}


def _finite(value: Any) -> Any:
    """JSON has no NaN: a browser would refuse the whole table."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
