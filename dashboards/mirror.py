"""One MLflow run as a mirror of one trial: its wanted content, its present content, and the delivery of the difference.

When to deliver, and what to do while a server is away, is decided in tracking.py.
"""

import hashlib
import json
import math
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import mlflow.entities as ml
import yaml
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS, MLFLOW_LOGGED_MODELS, MLFLOW_PARENT_RUN_ID

from dashboards import mirror_files, packaging, records
from dashboards.description import Description, End
from dashboards.names import FINE_TUNING, OTHER_STEPS
from dashboards.trial import flatten, merged
from fedtext.config.experiment import Experiment
from fedtext.records import RoundRecord

TABLE_SECONDS = 30.0  # between two uploads of the table, a file that is rewritten as a whole
TOKEN = "fedtext.id"  # makes the creation of a run repeatable
MODEL = "model"  # the folder of a trained model, among a run's artifacts
END_TAGS = ("error", "stopped")  # why a run ended; removed when it continues


class Mirror:
    """A run in MLflow. Its state is in ``folder``: ``tracking.json``, and ``spool.jsonl`` with undelivered records."""

    def __init__(self, folder: Path, shown_uri: str) -> None:
        """Load the state that an earlier process left in ``folder``. ``shown_uri`` is the address in its file."""
        self.folder, self.shown_uri = folder, shown_uri
        last = mirror_files.read_state(folder)
        self.recorded_at: str = last.get("uri", shown_uri)
        state = mirror_files.of_store(last, shown_uri)
        self.elsewhere: dict[str, mirror_files.Known] = state["elsewhere"]
        self.anew = False  # whether the store no longer has its run, and it has another one
        self.run_id: str | None = state.get("run_id")
        self.experiment_id: str | None = state.get("experiment_id")
        self.token: str | None = state.get("token")
        self.status: str = state.get("status", "")
        self.last_round: int = state.get("last_round", 0)
        owed = state.get("owed", mirror_files.Owed())
        self.description = owed.get("description")
        self.changed = owed.get("changed")
        self.digest: str = state.get("texts", "")
        self.described: dict[str, str] = owed.get("described", {})
        self.model: str = owed.get("model", "")  # the folder of a trained model that MLflow lacks
        self.end = owed.get("end")
        self.pending: dict[int, RoundRecord] = {}
        self.retry_at = 0.0  # monotonic seconds; before, nothing is tried again for this run alone
        self.files_retry_at = 0.0  # likewise for its files, which may live elsewhere
        self._opened: Description | None = None  # in case the store no longer has the run
        self._reopen = False
        self._stale_tags: list[str] = []
        self._delivered: set[int] | None = None  # rounds that MLflow has; None: not yet asked
        self._tuned = False  # whether it has curves of fine-tuning
        self._cells: records.Cells = {}  # the table of clients
        self._texts: dict[str, str] = {}  # files that came with records, by name
        self._unfiled: dict[int, RoundRecord] = {}  # those that the table in MLflow lacks, or whose files it lacks
        self._table_time, self._table_read = -math.inf, self.run_id is None
        self.offer(mirror_files.read_spool(folder))

    @property
    def owes_records(self) -> bool:
        """Whether MLflow lacks anything of this run except for files."""
        owed = self.pending or self.description or self.changed or self.end or self._reopen
        return bool(owed) or not self.run_id

    def owes_files(self, final: bool) -> bool:
        """Whether files are to be sent now; the table is due every ``TABLE_SECONDS``, and when ``final``."""
        due = final or time.monotonic() - self._table_time >= TABLE_SECONDS
        return bool(self.described or self.model or (self._unfiled and due))

    def open(self, description: Description) -> None:
        """Have the run created, or set to RUNNING if it exists. An existing run keeps its parameters; keys of the
        experiment that have other values now become tags, and its files are written again."""
        self._opened, before, self.digest = description, self.digest, _digest(description.texts())
        if not self.run_id:
            self.description, self.described = description, description.texts()
        elif before != self.digest:
            self.changed, self.described = description, description.texts()
        self.end = None
        self._reopen = bool(self.run_id) and self.status != "RUNNING"

    def offer(self, history: Iterable[RoundRecord]) -> None:
        """Add records to deliver, except for those that MLflow has."""
        for record in merged(history):
            round_ = record.round
            if self._delivered is None or round_ not in self._delivered:
                self.pending.setdefault(round_, record)
            for client, metrics in record.clients.items():
                if self._cells.get((round_, client)) != metrics:
                    self._cells[round_, client] = dict(metrics)
                    self._unfiled[round_] = record
            if record.files:
                self._texts |= record.files
                self._unfiled[round_] = record

    def offer_model(self, folder: Path) -> None:
        """Add the folder of a trained model to deliver, if it exists."""
        self.model = str(folder) if folder.is_dir() else ""

    def finish(self, end: End) -> None:
        self.end, self._reopen = end, False

    def deliver_records(self, client: MlflowClient, experiment_id: str, parent: str | None) -> None:
        """Deliver the run, its records, parameters, tags, dataset and status: everything except for files.

        A repeated delivery changes nothing.

        Args:
            client: The connection to the tracking server.
            experiment_id: Id of the experiment in MLflow.
            parent: Id of the parent run; None: there is none.

        Raises:
            MlflowException, OSError: The connection failed. Deliveries until then are remembered.
        """
        self._find(client)
        if self.anew and not (self.run_id or self._opened):
            return  # what it is called, and its parameters, are known when it is opened
        if not self.run_id:
            self._create(client, experiment_id, parent)
        assert self.run_id is not None
        if self._reopen:
            for tag in self._stale_tags:
                client.delete_tag(self.run_id, tag)
            client.update_run(self.run_id, status="RUNNING")
            self._reopen, self.status, self._stale_tags = False, "RUNNING", []
        self._deliver_rows(client)
        if self.description:
            self._describe(client, self.description)
            self.description = None
        if self.changed:
            self._renew(client, self.changed)
            self.changed = None
        if self.end:
            self._deliver_end(client, self.end)
            self.status, self.end = self.end.status, None

    def deliver_files(self, client: MlflowClient, final: bool) -> None:
        """Deliver what MLflow lacks of the files: description, model, table of clients, files of records."""
        assert self.run_id is not None
        for name in list(self.described):
            client.log_text(self.run_id, self.described[name], name)
            del self.described[name]
        if self.model:
            if Path(self.model).is_dir():  # or a person has removed it
                client.log_artifacts(self.run_id, self.model, MODEL)
                if told := packaging.history(Path(self.model), self.run_id):
                    client.set_tag(self.run_id, MLFLOW_LOGGED_MODELS, told)
            self.model = ""
        if self._unfiled and self.owes_files(final):
            self._deliver_table(client)
            for name, text in self._texts.items():
                client.log_text(self.run_id, text, name)
            self._unfiled, self._texts, self._table_time = {}, {}, time.monotonic()

    def save(self, spool: bool = False) -> None:
        """Write ``tracking.json``, and with ``spool`` the undelivered records. A spool without records is removed.

        Until another store than the last one has been reached, the files stay those of the last one.

        Raises:
            OSError: The folder cannot be written.
        """
        if self.recorded_at != self.shown_uri and self._delivered is None:
            return
        owed: dict[str, Any] = {
            "description": self.description,
            "changed": self.changed,
            "described": self.described,
            "model": self.model,
            "end": self.end,
        }
        state = {
            "uri": self.shown_uri,
            "experiment_id": self.experiment_id,
            "run_id": self.run_id,
            "token": self.token,
            "status": self.status,
            "last_round": self.last_round,
            "texts": self.digest,
            "owed": {name: value for name, value in owed.items() if value},
            "elsewhere": self.elsewhere,
        }
        mirror_files.write_state(self.folder, state)
        owing = merged(self._unfiled.values(), self.pending.values())
        if spool or not owing:
            mirror_files.write_spool(self.folder, owing)

    def _find(self, client: MlflowClient) -> None:
        """Ask MLflow which rounds of an earlier process it has. The file may lag behind if that process died."""
        if self._delivered is not None:
            return
        if not self.run_id:
            self._delivered = set()
            return
        run = _get_run(client, self.run_id)
        if run is None:  # another store, or the run was deleted: start a new one
            self.run_id, self.token, self.status, self.last_round, self._reopen = None, None, "", 0, False
            self.anew = True
            self._delivered, self._unfiled, self._table_read = set(), dict(self.pending), True
            return
        names = [name for name in run.data.metrics if not name.startswith(OTHER_STEPS)]
        points = (point for name in names for point in client.get_metric_history(self.run_id, name))
        delivered = {point.step for point in points}
        self._tuned = any(name.startswith(FINE_TUNING) for name in run.data.metrics)
        self._delivered, self.status = delivered, run.info.status
        self._stale_tags = [tag for tag in END_TAGS if tag in run.data.tags]
        self.pending = {round_: record for round_, record in self.pending.items() if round_ not in delivered}

    def _create(self, client: MlflowClient, experiment_id: str, parent: str | None) -> None:
        self.description = self.description or self._opened or Description(self.folder.name, time.time())
        self.described = self.description.texts()
        run = None
        if self.token:  # requested before, but the response was lost with the connection or the process
            found = client.search_runs([experiment_id], f"tags.`{TOKEN}` = '{self.token}'", max_results=1)
            run = found[0] if found else None
        else:
            self.token = uuid.uuid4().hex
            self.save()
        if run is None:
            tags = {TOKEN: self.token, **({MLFLOW_PARENT_RUN_ID: parent} if parent else {})}
            started = round(1000 * self.description.started)
            run = client.create_run(experiment_id, start_time=started, tags=tags, run_name=self.description.name)
        self.run_id, self.experiment_id, self.status = run.info.run_id, experiment_id, "RUNNING"

    def _describe(self, client: MlflowClient, description: Description) -> None:
        for params in records.run_params(description.params):
            client.log_batch(self.run_id, params=params)
        client.log_batch(self.run_id, tags=records.run_tags(description.tags))
        if description.dataset:
            client.log_inputs(self.run_id, datasets=[records.run_dataset(description.dataset)])

    def _renew(self, client: MlflowClient, description: Description) -> None:
        """Set tags for the keys of the experiment that have other values than the run's parameters and tags."""
        assert self.run_id is not None
        had = client.get_run(self.run_id).data
        before = {tag.key: tag.value for tag in records.run_tags(had.params | had.tags)}
        every = flatten(yaml.safe_load(description.resolved) or {})  # of a sweep's trial tags leave out defaults
        named = {key: value for key, value in every.items() if key in before} | description.params | description.tags
        of_keys = [tag for tag in records.run_tags(named) if tag.key.partition(".")[0] in Experiment.model_fields]
        if changed := [tag for tag in of_keys if before.get(tag.key) != tag.value]:
            client.log_batch(self.run_id, tags=changed)

    def _deliver_rows(self, client: MlflowClient) -> None:
        assert self._delivered is not None
        waiting = [self.pending[round_] for round_ in sorted(self.pending)]
        for rounds, points in records.metric_batches(waiting, self._tuned):
            if points:
                client.log_batch(self.run_id, metrics=points)
            for round_ in rounds:
                self._tuned = self._tuned or bool(self.pending.pop(round_).curves)
                self._delivered.add(round_)
                self.last_round = max(self.last_round, round_)

    def _deliver_end(self, client: MlflowClient, end: End) -> None:
        # With the time of the end a repeated delivery is the same point, and a later end the newer one.
        points = [ml.Metric(name, value, round(1000 * end.time), 0) for name, value in end.metrics.items()]
        client.log_batch(self.run_id, metrics=points, tags=records.run_tags(end.tags))
        if end.name:
            client.update_run(self.run_id, name=end.name)
        client.set_terminated(self.run_id, status=end.status, end_time=round(1000 * end.time))

    def _deliver_table(self, client: MlflowClient) -> None:
        """Write the whole table: ``log_table`` would append, so that rows delivered again would be there twice."""
        if not self._table_read:
            self._cells = {**records.read_table(client, str(self.run_id)), **self._cells}
        self._table_read = True
        client.log_text(self.run_id, records.table_text(self._cells), records.TABLE)
        tag = json.dumps([{"path": records.TABLE, "type": "table"}])
        client.set_tag(self.run_id, MLFLOW_LOGGED_ARTIFACTS, tag)


def _get_run(client: MlflowClient, run_id: str) -> ml.Run | None:
    """Return the run; None if the store does not know it, or if it was deleted."""
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return None if run.info.lifecycle_stage == "deleted" else run


def _digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
