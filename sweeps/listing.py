"""Lists of the experiments that come with fedtext, and of runs with their state. Nothing of a run is executed."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import yaml

from fedtext.errors import UserError, spelled
from fedtext.metrics import smaller_is_better
from fedtext.runtime.lock import is_locked
from fedtext.server.last import last_values
from fedtext.state.checkpoint import glance
from sweeps.places import OUTCOME, PLAN, RESOLVED
from sweeps.points import unsuggested
from sweeps.stored import About, Outcome, Plan, glimpsed

State = Literal["running", "finished", "interrupted", "failed"]
# Of a run without the metric by which its trials are sorted, the first of these that it has is shown.
METRICS = ("Ap", "Ag", "Local", "perplexity", "loss")

_END = re.compile(r"(?<!\bet al)\. |(?<=\bet al)\. (?=[A-Z])")  # of a sentence: not before the year of a paper


@dataclass(frozen=True)
class ListedExperiment:
    """An experiment file.

    Attributes:
        name: Its name.
        path: The file.
        summary: The first sentence of its comment.
    """

    name: str
    path: Path
    summary: str


@dataclass(frozen=True)
class ListedTrial:
    """A trial of a run.

    Attributes:
        id: Its name.
        method: Its method.
        baseline: Whether it is a baseline.
        status: ``finished``, ``stopped`` (early, by the scheduler) or ``failed``; ``begun`` or ``waiting`` if it has
            not ended.
        rounds: Completed rounds.
        of: Rounds that it is to have; None if unknown.
        metrics: The last value of every metric.
        error: Why it failed; else empty.
    """

    id: str
    method: str
    baseline: bool
    status: str
    rounds: int
    of: int | None
    metrics: Mapping[str, float]
    error: str = ""


@dataclass(frozen=True)
class ListedRun:
    """A run or a sweep.

    Attributes:
        name: Its name.
        path: Its folder.
        experiment: The name of its experiment.
        command: The command that began it.
        state: ``running``: a command works on it now; ``interrupted``: none does, and trials have not ended, or a
            search has points left to suggest;
            ``failed``: all have ended, and some failed.
        trials: Its trials, in order.
        metric: The metric by which its trials are sorted, or another one if no trial has that.
        best: Its best value, a mean over seeds, of trials that have not failed and are no baselines; None: there is
            none.
        changed: When a trial last wrote something, in unix seconds.
    """

    name: str
    path: Path
    experiment: str
    command: str
    state: State
    trials: tuple[ListedTrial, ...]
    metric: str
    best: float | None
    changed: float

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of its trials, each once."""
        return tuple(dict.fromkeys(trial.method for trial in self.trials))


def experiments(folder: Path) -> list[ListedExperiment]:
    """Return the experiments in a folder, by name."""
    return [ListedExperiment(file.name, file, _summary(file)) for file in sorted(folder.glob("*.yaml"))]


def _summary(file: Path) -> str:
    """Return the first sentence of the comment at the beginning of a file, without what is in parentheses."""
    comment = []
    for line in file.read_text("utf-8", "replace").splitlines():
        if not (text := line.removeprefix("#").strip()) or not line.startswith("#"):
            break
        comment.append(text)
    text = re.sub(r" \([^()]*\)", "", " ".join(comment))
    return _END.split(text, maxsplit=1)[0].rstrip(".:")


def runs(storage: Path) -> list[ListedRun]:
    """Return the runs in a folder, the latest first."""
    return sorted(map(run, _folders(storage)), key=lambda one: (-one.changed, one.name))


def names(storage: Path) -> list[str]:
    """Return the names of the runs in a folder."""
    return sorted(folder.name for folder in _folders(storage))


def _folders(storage: Path) -> list[Path]:
    """Return the folders of runs in a folder. One whose plan is no file, such as a broken link, is none."""
    return [plan.parent for plan in storage.glob(f"*/{PLAN}") if plan.is_file()]


def run(folder: Path) -> ListedRun:
    """Return what a run's folder says of it. A run of which a file cannot be read has what the others say.

    Raises:
        UserError: There is no run in ``folder``.
    """
    if not (folder / PLAN).is_file():
        raise UserError(f"there is no run in {folder}: {spelled('ls')} lists those in runs/")
    plan, experiment = glimpsed(folder / PLAN, Plan) or Plan(), _experiment(folder / RESOLVED)
    trials = tuple(_trials(folder, plan.get("trials") or {}))
    tune = experiment["tune"] if isinstance(experiment.get("tune"), dict) else {}
    metric, best = _best(trials, str(tune.get("metric", "")), tune.get("mode", "auto"))
    left = not trials or any(trial.status in ("begun", "waiting") for trial in trials) or _search_goes_on(tune, folder)
    failed = any(trial.status == "failed" for trial in trials)
    state: State = "running" if is_locked(folder) else "interrupted" if left else "failed" if failed else "finished"
    name = str(experiment.get("name") or (plan.get("content") or {}).get("name", ""))
    command = plan.get("command") or "reproduce"
    return ListedRun(folder.name, folder, name, command, state, trials, metric, best, _changed(folder))


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNREADABLE = (OSError, ValueError, yaml.YAMLError, LookupError, AttributeError, RecursionError)  # what PyYAML raises


def _experiment(file: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; empty if there is none."""
    try:
        content = yaml.load(file.read_text("utf-8"), _Loader)  # in C: lists have many
    except _UNREADABLE:
        return {}
    return content if isinstance(content, dict) else {}


def _trials(folder: Path, planned: Mapping[str, About]) -> Iterator[ListedTrial]:
    """Yield the planned trials, and others in the folder. A run of an earlier version does not say what was planned."""
    there = {path.parent.name for name in (OUTCOME, "checkpoint") for path in folder.glob(f"*/{name}")}
    for case in [*planned, *sorted(there - set(planned))]:
        about = planned.get(case, About())
        records = glance(folder / case / "checkpoint")
        outcome = glimpsed(folder / case / OUTCOME, Outcome)
        yield ListedTrial(
            case,
            about.get("method") or re.sub(r"^\d+-|-seed\d+$", "", case),
            bool(about.get("baseline")),
            outcome["status"] if outcome else "begun" if records else "waiting",
            records[-1].round if records else 0,
            about.get("rounds"),
            last_values(records),
            outcome.get("error", "") if outcome else "",
        )


def _best(trials: Sequence[ListedTrial], metric: str, mode: str) -> tuple[str, float | None]:
    """Return the metric of sorting, or else the first other one that a trial has, and its best mean over seeds.

    A baseline is not chosen by a sweep: if no other trial has a metric, there is no best value, and the metric is the
    first that a baseline has.
    """
    well = [trial for trial in trials if trial.status != "failed"]
    names = metric, metric.removesuffix("_val"), *METRICS
    for name in names:
        cases: dict[str, list[float | None]] = {}  # of several seeds the mean, of those that have all if some have
        for trial in trials:
            if not trial.baseline:
                value = trial.metrics.get(name) if trial.status != "failed" else None
                cases.setdefault(re.sub(r"-seed\d+$", "", trial.id), []).append(value)
        known = [[value for value in found if value is not None and isfinite(value)] for found in cases.values()]
        whole = [found for found, planned in zip(known, cases.values(), strict=True) if len(found) == len(planned)]
        if values := [fmean(found) for found in whole or known if found]:
            smaller = smaller_is_better(name) if name != metric or mode == "auto" else mode == "min"
            return name, min(values) if smaller else max(values)
    return next((name for name in names if any(name in trial.metrics for trial in well)), metric), None


def _search_goes_on(tune: Mapping[str, Any], folder: Path) -> bool:
    """Whether the search of a run has points left to suggest."""
    if tune.get("search", "random") == "random":
        return False
    try:
        return unsuggested(tune.get("samples", 0), folder) > 0
    except (OSError, ValueError, KeyError, TypeError):  # of another version, or damaged
        return False


def _changed(folder: Path) -> float:
    """Return when a run was last worked on, in unix seconds."""
    files = [folder / PLAN, *folder.glob(f"*/{OUTCOME}"), *folder.glob("*/checkpoint")]
    times = [file.stat().st_mtime for file in files if file.exists()]
    return max(times, default=time.time())
