"""The page of an experiment in MLflow: its description, and the saved view of a sweep."""

import hashlib
import json
import time
from collections.abc import Iterable, Mapping

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from dashboards.description import varying
from dashboards.names import logged
from dashboards.provenance import command_line, metrics_note
from dashboards.store import Store
from dashboards.trial import Case
from dashboards.views import LONGEST, View
from fedtext.config.experiment import Experiment
from fedtext.metrics import column_order, find
from fedtext.runtime.markdown import code

# How MLflow's pages present an experiment: as training of models, with this metric in the first chart.
KIND = {"mlflow.experimentKind": "custom_model_development"}
PRIMARY_METRIC = "mlflow.experiment.primaryMetric.name"
DIGEST = "fedtext.note"  # the digest of a description of ours: one that a person has edited is left alone
COLUMNS = 8  # at most this many metrics in a table


class Page:
    """The description of one run or sweep on the page of its experiment."""

    def __init__(self, experiment: Experiment, name: str, sweep: bool, again: str) -> None:
        """Describe a run.

        Args:
            experiment: The experiment as given, with its space.
            name: Name of the run.
            sweep: Whether it is a sweep.
            again: The command that continues it.
        """
        self.experiment, self.name, self.sweep, self.again = experiment, name, sweep, again
        self.owed = True
        self._parameters: dict[str, None] = {}
        self._guarantees = _guarantees(experiment)

    def add(self, case: Case) -> None:
        """Add a trial: its parameters and its guarantees are columns of the view."""
        found = dict.fromkeys(varying(case)) if self.sweep else {}
        guarantees = _guarantees(case.experiment) if self.sweep else {}
        known = found.keys() <= self._parameters.keys() and guarantees.keys() <= self._guarantees.keys()
        self.owed = self.owed or not known
        self._parameters |= found
        self._guarantees |= guarantees

    @property
    def several(self) -> bool:
        """Whether cases have several seeds."""
        return self.experiment.seeds > 1

    def view(self) -> View:
        """Return the view of the sweep."""
        tune = self.experiment.tune
        named = [*(name for name in self._parameters if name != "method"), "method"]
        return View(self.name, named, [tune.metric, *self._columns()], tune.direction == "min", self.several)

    def note(self) -> str:
        """Return the description, as Markdown: what was run, by which command, and what to look at."""
        one, tune = self.experiment, self.experiment.tune
        methods = _methods(one) if self.sweep else {one.method.name}
        method = "several methods" if len(methods) > 1 else min(methods)
        what = f"{method} on {one.corpus.name}, {one.training.rounds} rounds"
        lines = [f"{'Sweep' if self.sweep else 'Run'} **{self.name}** of {one.name}: {what}", ""]
        if self.sweep:
            lines += [f"- {code(key)}: {code(json.dumps(spec))}" for key, spec in one.space.items()]
            beside = ", ".join(method.name for method in one.baselines)
            lines += [f"- baselines: {beside}"] if beside else []
            lines += [f"- seeds: {one.seed} to {one.seed + one.seeds - 1}"] if self.several else []
        if command := command_line():
            lines += [f"- begun by {code(command)}"]
        lines += [f"- continued by {code(self.again)}", ""]
        if self.sweep:
            better = "smaller" if tune.direction == "min" else "larger"
            lines += [
                f"Trials are sorted by `{logged(tune.metric)}` ({better} is better). Under **Views**, {self.name} "
                "opens with the swept keys in a table, and with parallel coordinates among the charts. The artifact "
                "`report/report.html` of the sweep's own run has tests, trade-offs and guarantees.",
                "",
            ]
        return "\n".join([*lines, metrics_note(one)])

    def create(self, client: MlflowClient, store: Store) -> str:
        """Return the id of the experiment in MLflow, which is created if it does not exist.

        Raises:
            MlflowException: The connection failed.
        """
        name = self.experiment.tracking.experiment or self.experiment.name
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                tags = {**KIND, **self._note_tags(), PRIMARY_METRIC: logged(self.experiment.tune.metric)}
                return str(client.create_experiment(name, store.artifacts, tags))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = client.get_experiment_by_name(name)  # another driver has created it
        assert found is not None
        return str(found.experiment_id)

    def deliver(self, client: MlflowClient, experiment_id: str) -> None:
        """Set the description, unless a person has changed it, and the view.

        Raises:
            MlflowException: The connection failed.
        """
        if not self.owed:
            return
        tags = client.get_experiment(experiment_id).tags
        theirs = tags.get(MLFLOW_RUN_NOTE, "")
        wanted = self._note_tags() if not theirs or tags.get(DIGEST) == _digest(theirs) else {}
        if self.sweep and self._parameters:
            key, value = self.view().tag(time.time())
            wanted |= {key: value} if len(value) <= LONGEST else {}
        for key, value in wanted.items():
            client.set_experiment_tag(experiment_id, key, value)
        self.owed = False

    def _note_tags(self) -> dict[str, str]:
        note = self.note()[:LONGEST]
        return {MLFLOW_RUN_NOTE: note, DIGEST: _digest(note)}

    def _columns(self) -> Iterable[str]:
        """Return the metrics of the table beside the one that sorts it, in their order."""
        one = self.experiment
        shown = [name for name in one.evaluated_metrics if (metric := find(name)) and metric.columns != "none"]
        last = [name for name in (*sorted(self._guarantees), "bytes_total") if name != one.tune.metric]
        ordered = [name for name in sorted(shown, key=column_order) if name != one.tune.metric]
        return [*ordered[: COLUMNS - len(last)], *last]


def _guarantees(experiment: Experiment) -> dict[str, None]:
    """Return the names of the guarantees that a trial reports: of clients, and of single texts."""
    found = {
        "epsilon": bool(experiment.uplink or experiment.server.noise),
        "epsilon_text": experiment.training.dp_sgd is not None,
    }
    return {name: None for name, reported in found.items() if reported}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _methods(experiment: Experiment) -> set[str]:
    """Return the names of the methods that the space chooses from; the experiment's own if it chooses none."""
    found = set[str]()
    for key, spec in experiment.space.items():
        for values in spec.values():
            settings = values.values() if isinstance(values, Mapping) else [{key: value} for value in values]
            chosen = [setting.get("method", setting.get("method.name")) for setting in settings]
            found |= {_name(one or experiment.method.name) for one in chosen} if any(chosen) else set()
    return found or {experiment.method.name}


def _name(method: str | Mapping[str, object]) -> str:
    """Return the name of a method as it is written: ``kteps``, ``{name: kteps}`` or ``{kteps: {}}``."""
    return method if isinstance(method, str) else str(method.get("name", next(iter(method), "")))
