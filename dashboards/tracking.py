"""Experiments in MLflow: a parent run for a sweep, a child run for each trial, kept up to date by the driver alone.

A tracking server that is away never stops training. Undelivered records are kept, sent again with the next delivery and
at the end, and then spooled in the run folder (``spool.jsonl``) for a later Tracker.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from mlflow.exceptions import MlflowException
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT, MLFLOW_RUN_NOTE

from dashboards.delivery import RETRY_SECONDS, UNDELIVERED, Delivery
from dashboards.description import End, described, ended, of_group, of_trial, summed_up
from dashboards.experiment_page import Page
from dashboards.groups import Found, Spread
from dashboards.machine import watch
from dashboards.mirror import Mirror
from dashboards.mirror_files import STATE_FILE
from dashboards.names import logged
from dashboards.packaging import MLMODEL, package
from dashboards.provenance import experiment_tags
from dashboards.registry import register
from dashboards.store import Store, cause
from dashboards.trial import About, Case, RunStatus, say, title
from dashboards.versions import git_state, versions
from dashboards.views import path
from fedtext.config.experiment import Experiment
from fedtext.records import RoundRecord
from fedtext.runtime.markdown import plain
from fedtext.state import model_folder

NOT_SERVED = "model.not_served"


class Tracker:
    """The runs of one run folder in one MLflow store. A later Tracker on the same folder continues the same runs.

    No method raises because MLflow is away or refuses something: it prints one message to stderr and tries again later.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        experiment: Experiment,
        *,
        sweep: bool,
        tags: Mapping[str, str] | None = None,
        retry_seconds: float = RETRY_SECONDS,
        again: str = "the same command",
    ) -> None:
        """Create the tracker, without contacting MLflow yet.

        Args:
            store: The MLflow store.
            folder: ``<storage>/<run>``.
            experiment: The experiment as given, with its space.
            sweep: Whether the trials have a parent run.
            tags: Tags of every run.
            retry_seconds: Between two attempts to reach a store.
            again: The command that continues the run, and delivers what MLflow lacks at its end; for messages.

        Raises:
            OSError: The folder cannot be read.
        """
        self.store, self.folder, self.experiment = store, folder, experiment
        self.sweep, self.again = sweep, again
        code = git_state()
        commit = {MLFLOW_GIT_COMMIT: code["git.commit"]} if code else {}
        self.tags = {**versions(), **commit, **code, **(tags or {}), "fedtext.run": folder.name}
        self._page = Page(experiment, folder.name, sweep, again)
        self._delivery = Delivery(store, self._page, retry_seconds)
        self._monitor: SystemMetricsMonitor | None = None
        self._with_model: set[str] = set()  # trials whose model goes to MLflow
        self._parent = Mirror(folder, store.shown) if sweep else None
        left = sorted(path.parent for path in folder.glob(f"*/{STATE_FILE}"))
        self._trials = {path.name: Mirror(path, store.shown) for path in left}

    def open(self, at: float | None = None) -> None:
        """Start or continue the parent run, and deliver what an earlier Tracker could not. ``at``, here and below: the
        time of the event in unix seconds; None: now."""
        if self._parent:
            dump = self.experiment.model_dump(mode="json")
            tags = {**self.tags, **experiment_tags(self.experiment), MLFLOW_RUN_NOTE: self._page.note()}
            self._parent.open(described(self.folder.name, dump, {}, tags, at))  # no parameters: it is no trial
        self._deliver(self._parent)
        self._watch(self._parent)

    def open_trial(self, case: Case, about: About | None = None, at: float | None = None) -> None:
        """Start the run of a trial, or set an existing one back to RUNNING.

        Args:
            case: The trial's case.
            about: Facts about it beyond its experiment; None: none are added.
            at: The start in unix seconds; None: now.
        """
        mirror = self._opened(case, about, at)
        self._deliver(mirror)
        if not self._parent:
            self._watch(mirror)

    def deliver(self, case_id: str, records: Iterable[RoundRecord]) -> None:
        """Log the records of an opened trial that MLflow does not have yet."""
        mirror = self._trials[case_id]
        mirror.offer(records)
        self._deliver(mirror)

    def close_trial(
        self,
        case_id: str,
        status: RunStatus,
        error: str = "",
        stopped: str = "",
        at: float | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """End the run of a trial.

        Args:
            case_id: The trial.
            status: How it ended.
            error: The cause of a failure.
            stopped: When it was ended early.
            at: The time of its end.
            tags: Further tags, known only now.
        """
        mirror = self._trials[case_id]
        end = ended(status, at or time.time(), error, stopped)
        served = self._offer_model(case_id, status)
        mirror.finish(replace(end, tags={**end.tags, **(tags or {}), **served}))
        self._deliver(mirror, final=True)

    def settle(
        self,
        case: Case,
        records: Iterable[RoundRecord],
        status: RunStatus,
        error: str = "",
        stopped: str = "",
        about: About | None = None,
    ) -> None:
        """Deliver what MLflow lacks of a trial that ended in an earlier process.

        Args:
            case: The trial's case.
            records: Its records.
            status: How it ended.
            error: The cause of a failure.
            stopped: When the search stopped it; empty: it did not.
            about: Facts about it beyond its experiment; None: none are added.
        """
        self._known(case)
        mirror = self._trials.get(case.id)
        known = mirror and mirror.run_id and mirror.recorded_at == self.store.shown
        if mirror and known and mirror.status == status and not mirror.owes_records:
            return
        records = list(records)
        mirror = self._opened(case, about, records[0].time if records else None)
        mirror.offer(records)
        end = ended(status, records[-1].time if records else time.time(), error, stopped)
        mirror.finish(replace(end, tags={**end.tags, **self._offer_model(case.id, status)}))
        self._deliver(mirror, final=True)

    def close(
        self,
        status: RunStatus = "FINISHED",
        best: Found | None = None,
        found: Iterable[Found] = (),
        at: float | None = None,
    ) -> None:
        """End the parent run, deliver everything once more, and print what remains undelivered.

        A trial that is still open (an interrupted sweep) is ended as KILLED; a resume sets it back to RUNNING.

        Args:
            status: How the sweep ended.
            best: The best case and its metrics.
            found: All cases and their metrics. Cases with several seeds get a run of their own.
            at: The time of the end.
        """
        now = at or time.time()
        self.leave()
        for mirror in self._trials.values():
            if mirror.status in ("", "RUNNING") and not mirror.end:
                mirror.finish(End("KILLED", now))
        for group, values in found:
            if len(group.cases) > 1 and values:
                description, end = of_group(group, values, status, now, self.tags)
                mirror = self._trials.setdefault(group.id, Mirror(self.folder / group.id, self.store.shown))
                mirror.open(description)
                mirror.finish(end)
        if self._parent:
            self._parent.finish(summed_up(status, now, self.experiment.tune.metric, best))
        self._delivery.last(self._mirrors(), self._parent)
        name = self.experiment.tracking.register_as
        if name and status == "FINISHED":  # or another one may still be best
            if best:
                self._register(name, best[0].case, best[1])
            else:
                metric = self.experiment.tune.metric
                say(f"no version of {name} was registered: no trial has reported {metric}; choose another tune.metric")
        behind = [mirror for mirror in self._mirrors() if mirror.owes_records or mirror.owes_files(True)]
        if behind:
            rounds = sum(len(mirror.pending) for mirror in behind)
            say(
                f"MLflow at {self.store.shown} lacks {f'{rounds} rounds' if rounds else 'files'} of {len(behind)} "
                f"run{'s' * (len(behind) > 1)}: they are kept in "
                f"{self.folder}, and {self.again} delivers them"
            )

    def leave(self) -> None:
        """Write nothing more by itself, as system metrics are: the runs are left as they are."""
        if self._monitor:
            self._monitor.finish()
            self._monitor = None

    def say_nothing(self) -> None:
        """Tell no failure of delivery any more: the process ends, and with it the connections."""
        self._delivery.told = True

    def log_files(self, paths: Iterable[Path], folder: str) -> None:
        """Upload files to a folder of the parent run's artifacts. While MLflow is away they are not uploaded, and a
        message is printed."""
        run = self._parent.run_id if self._parent else None
        try:
            for path in paths if run else ():
                self._delivery.connect()[0].log_artifact(run, str(path), folder)
        except Exception as error:  # of whatever library reaches the files' store
            self._delivery.tell(error)

    def charts_path(self) -> str | None:
        """Return the path of MLflow's page with the charts of this sweep's trials, or with several seeds the means of
        its cases; None before there are runs."""
        experiment_id = self._delivery.experiment_id
        return path(experiment_id, self.folder.name, charts=True) if experiment_id else None

    def _opened(self, case: Case, about: About | None, at: float | None = None) -> Mirror:
        name = title(case) if self.sweep else self.folder.name
        mirror = self._trials.setdefault(case.id, Mirror(self.folder / case.id, self.store.shown))
        mirror.open(of_trial(case, name, about or About(), self.tags, at, self.sweep))
        self._known(case)
        return mirror

    def _known(self, case: Case) -> None:
        """Note a trial for the page of the sweep, and whether its model goes to MLflow."""
        self._page.add(case)
        if case.experiment.tracking.model and case.experiment.save.model == "shared":
            self._with_model.add(case.id)

    def _offer_model(self, case_id: str, status: RunStatus) -> dict[str, str]:
        """Package the model of a finished trial, and offer it to MLflow unless it is not to go there. Returns a tag
        with the reason if it cannot be served."""
        folder = self.folder / case_id / model_folder.FOLDER
        if status != "FINISHED" or not folder.is_dir():
            return {}
        try:
            reason = package(folder)
        except Exception as error:  # whatever a model's own prediction raises: its trial has finished all the same
            reason = cause(error) or type(error).__name__
        if case_id in self._with_model:
            self._trials[case_id].offer_model(folder)
        return {NOT_SERVED: reason} if reason else {}

    def _watch(self, mirror: Mirror | None) -> None:
        """Log system metrics to a run, if they are asked for."""
        if self.experiment.tracking.system_metrics and not self._monitor and mirror and mirror.run_id:
            try:
                self._monitor = watch(self.store, mirror.run_id)
            except MlflowException as error:
                say(f"tracking.system_metrics: {cause(error)}")

    def _register(self, name: str, case: Case, values: Mapping[str, Spread]) -> None:
        """Register the model of the best case, as its first trial has it, and print its version."""
        mirror, metric = self._trials.get(case.id), self.experiment.tune.metric
        if not (mirror and mirror.run_id and case.id in self._with_model) or mirror.model:
            say(f"no version of {name} was registered: MLflow lacks the model of {case.id}; {self.again} tries again")
            return
        if not (self.folder / case.id / model_folder.FOLDER / MLMODEL).is_file():
            say(f"no version of {name} was registered: the model of {case.id} cannot be served, see its {NOT_SERVED}")
            return
        told = f"{title(case)} of {self.folder.name}, {logged(metric)} {values[metric].mean:.4g}"
        try:
            version = register(self._delivery.connect()[0], name, mirror.run_id, plain(told))
        except UNDELIVERED as error:
            say(f"no version of {name} was registered: {cause(error)}; {self.again} tries again")
            return
        say(f"models:/{name}/{version.version} is the model of {told}")

    def _mirrors(self) -> list[Mirror]:
        """Return all runs; the parent first, since the others need its id."""
        return [*([self._parent] if self._parent else []), *self._trials.values()]

    def _deliver(self, changed: Mirror | None, final: bool = False) -> None:
        """Deliver what any run lacks. ``final``: ``changed`` has ended, so that its table and spool are written now."""
        self._delivery.send(self._mirrors(), self._parent, changed, final)
