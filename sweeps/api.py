"""Sweeps on Ray from Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dashboards.pareto import front
from dashboards.store import Store, cause, resolve
from dashboards.table import best
from dashboards.trial import Outcome
from fedtext.api.model import Model
from fedtext.api.named import NamedDict
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.records import RoundRecord
from fedtext.server.last import last_values
from fedtext.state import model_folder
from sweeps.job import Job
from sweeps.places import home
from sweeps.prepare import prepared
from sweeps.request import Cluster, Given, Request
from sweeps.trials import Ended
from sweeps.trials import run as run_trials

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Trial:
    """One trial of a sweep.

    Attributes:
        id: Name of the trial and of its folder.
        label: Its values of the swept keys.
        baseline: Whether it is a baseline, not a point of the space.
        experiment: The complete experiment.
        overrides: The keys of the space, dotted, with this trial's values.
        status: How it ended; ``left`` if it has not ended.
        error: The cause of a failure; else empty.
        history: The record of each round.
        folder: The folder of its checkpoint, files and model.
    """

    id: str
    label: str
    baseline: bool
    experiment: Experiment
    overrides: Mapping[str, Any]
    status: Literal["finished", "stopped", "failed", "left"]
    error: str
    history: tuple[RoundRecord, ...]
    folder: Path

    @property
    def metrics(self) -> dict[str, float]:
        """The value of every metric after the last round, as in tables. A KeyError names the nearest metrics."""
        return NamedDict(last_values(self.history))

    @property
    def model(self) -> Model:
        """The trained model.

        Raises:
            UserError: There is none (``save.model: none``), the trial has not ended, or the model has plug-ins that are
                not trusted.
        """
        return self.load_model()

    def load_model(self, trust_plugins: bool = False) -> Model:
        """Load the trained model.

        Args:
            trust_plugins: Whether plug-ins that are kept with the model may run, as in ``Model.load``.

        Raises:
            UserError: As ``model``.
        """
        return Model.load(self.folder / model_folder.FOLDER, trust_plugins=trust_plugins)


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        name: Name of the run, by which it is resumed.
        folder: The folder of its state.
        trials: Baselines, followed by the points of the space.
        store: The MLflow store of its runs.
        page: The path of MLflow's page that compares the trials; None if there is none.
        report: The page of its report; None if none was written.
        again: The command that continues it.
        job: The job that was run.
        ended: The outcome of each trial, as the driver has them.
    """

    name: str
    folder: Path
    trials: tuple[Trial, ...]
    store: Store
    page: str | None
    report: Path | None
    again: str
    job: Job
    ended: Ended

    @cached_property
    def best(self) -> Trial:
        """The best trial of the space by ``tune.metric``; with several seeds the first trial of the best case.

        Raises:
            UserError: No trial has the metric.
        """
        tune = self.job.experiment.tune
        found = best(self.job.cases, self.ended.outcomes, tune.metric, tune.direction)
        if found is None:
            raise UserError(f"tune.metric: no trial of {self.name} that ended well has {tune.metric}")
        return next(trial for trial in self.trials if trial.id == found.case.id)

    @cached_property
    def front(self) -> tuple[Trial, ...]:
        """The Pareto front of ``tune.metrics``: the trials that no other one dominates.

        The best of the first metric comes first; with several seeds the first trial of each case is there. With
        a single metric these are the best ones.
        """
        found = front(self.job.cases, self.ended.outcomes, self.job.experiment.tune.objectives)
        by_id = {trial.id: trial for trial in self.trials}
        return tuple(by_id[group.case.id] for group, _ in found)

    @property
    def failed(self) -> tuple[Trial, ...]:
        """The trials that failed or have not ended."""
        return tuple(trial for trial in self.trials if trial.status in ("failed", "left"))

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a data frame with a row for each round of each trial.

        Its columns are ``trial``, ``label``, ``baseline``, ``round``, the keys of the space, and the metrics.
        """
        import pandas

        return pandas.DataFrame(
            [
                {"trial": trial.id, "label": trial.label, "baseline": trial.baseline, "round": record.round}
                | dict(trial.overrides)
                | record.metrics
                for trial in self.trials
                for record in trial.history
            ]
        )


def sweep(
    experiment: Given | None = None,
    *overrides: str,
    data: str | Path | None = None,
    name: str | None = None,
    resume: str | None = None,
    seed: int | None = None,
    plugins: Sequence[str | Path] = (),
    address: str | None = None,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
) -> SweepResult:
    """Run every case of an experiment's space, and its baselines, on Ray, like ``fedtext sweep``.

    Trials run at the same time, as far as they fit in the cluster. They are recorded in MLflow, and their state is in
    ``runs/``. An interrupted sweep that is resumed gives the same bits.

    Args:
        experiment: The path of a file, the name of one in ``tune_spaces/``, its content, or an experiment. None with
            ``resume``: the experiment of that run.
        overrides: Changes to it, ``key=value``, the value in YAML: ``"training.rounds=3"``.
        data: The folder of corpora; None: $FEDTEXT_DATA, or the user's cache folder.
        name: The name of the run; None: the experiment's name and the time.
        resume: The name or the folder of a run to continue.
        seed: Replaces the experiment's seed.
        plugins: Files, or installed modules, with parts of your own, in addition to those that the experiment lists.
        address: The address of a Ray cluster; None: $RAY_ADDRESS, else the Ray of this process, else a new local one.
        num_cpus: Logical CPUs of a new local Ray, or those to wait for on a cluster.
        num_gpus: Logical GPUs of a new local Ray, or those to wait for on a cluster.

    Returns:
        The trials with their records, folders and models. A failed trial raises no exception: see its ``error``.

    Raises:
        UserError: The experiment, the data, the cluster or the tracking server cannot be used. It is raised before any
            trial starts. Or, at the end, the copy of the run at a URI is not complete.
        OwnershipLostError: Another command has continued the run at a URI.
        KeyboardInterrupt: Ctrl-C has stopped the trials, after what they had completed was recorded. Its message is the
            command that continues them.
    """
    place = Cluster(address, num_cpus, num_gpus)
    job = prepared(Request("sweep", experiment, overrides, plugins, name, resume, seed, data, place))
    ended = run_trials(job)
    job.folder.complete_copy()
    if ended.interrupted and (sentence := ended.unended(job)):
        raise KeyboardInterrupt(sentence)
    return result(job, ended)


def load_model(uri: str, tracking_uri: str | None = None, trust_plugins: bool = False) -> Model:
    """Load the model of a run from MLflow. It is there unless ``tracking.model`` is false.

    >>> load_model("runs:/0123456789abcdef/model").predict(["a superb kettle"])

    Args:
        uri: The model folder among the artifacts of a run: ``runs:/RUN_ID/model``.
        tracking_uri: MLflow's address; None: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db in the working folder.
        trust_plugins: Whether plug-ins that are kept with the model may run, as in ``Model.load``.

    Raises:
        UserError: There is no such model, or it needs plug-ins that are not trusted.
    """
    import mlflow

    try:
        folder = mlflow.artifacts.download_artifacts(uri, tracking_uri=resolve(tracking_uri, home()).uri)
    except Exception as error:  # MLflow's, or of whatever library reaches the files' store
        raise UserError(f"{uri}: {cause(error)}: name runs:/RUN_ID/model, and MLflow's address") from error
    return Model.load(folder, trust_plugins=trust_plugins)


def result(job: Job, ended: Ended) -> SweepResult:
    """Return the result of a job."""
    trials = []
    for case in job.cases:
        outcome = ended.outcomes.get(case.id)
        status = outcome.status if outcome else "left"
        found = outcome or Outcome("stopped")
        trials.append(
            Trial(
                *(case.id, case.label, case.baseline, case.experiment, case.overrides),
                *(status, found.error, found.rows, job.folder.case(case.id)),
            )
        )
    path = job.folder.path
    return SweepResult(
        path.name, path, tuple(trials), job.store, ended.page, ended.report, job.folder.again, job, ended
    )
