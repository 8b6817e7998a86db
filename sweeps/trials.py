"""The trials of a job: run by Tune, recorded in MLflow, displayed while they run."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from actors.alive import watching_ray
from actors.interrupt import Interrupted
from actors.placement import Node
from actors.waiting import fits, in_use, waiting_for
from dashboards import partition
from dashboards import report as reports
from dashboards import store as mlflow_store
from dashboards.callback import TrialCallback
from dashboards.groups import groups, metrics_of
from dashboards.losses import Losses
from dashboards.progress import progress
from dashboards.recorder import Recorder
from dashboards.table import best
from dashboards.trial import About, Dataset, Outcome, RunStatus, say
from fedtext.commands.guard import INTERRUPTED
from fedtext.commands.last_words import last_words
from fedtext.config.engine import engine_reason, stack_size
from fedtext.corpora.statistics import render
from fedtext.corpora.totals import totals
from fedtext.errors import OwnershipLostError, UserError, spelled
from fedtext.server.start import participant_count
from fedtext.state.checkpoint import history
from sweeps.job import Job, key
from sweeps.report import collected
from sweeps.training import train_cases
from tune_spaces.cases import Case

if TYPE_CHECKING:
    from dashboards.tracking import Tracker


@dataclass(frozen=True)
class Ended:
    """The end of a job.

    Attributes:
        outcomes: The outcomes of its trials, by case.
        page: The path of MLflow's page that compares them; None if there is none.
        report: The page of the report; None if there is none.
        interrupted: Whether Ctrl-C has stopped its trials.
    """

    outcomes: dict[str, Outcome]
    page: str | None
    report: Path | None = None
    interrupted: bool = False

    def unended(self, job: Job) -> str:
        """Return how the trials that have not ended are continued, in one sentence; empty if all have ended."""
        if not (left := job.left(self.outcomes)):
            return ""
        begin = "interrupted, and " * self.interrupted
        if left == 1:
            return f"{begin}1 trial has not ended: {job.folder.again} continues it"
        return f"{begin}{left} trials have not ended: {job.folder.again} continues them"


def run(job: Job) -> Ended:
    """Run the trials that have not ended yet, record them and display their progress.

    Raises:
        KeyboardInterrupt: A second Ctrl-C, with what continues the run.
    """
    try:
        with recorder(job) as recording:
            outcomes, interrupted = train(job, recording)
            report = _reported(job, outcomes, recording) if job.sweep else None
            page = recording.call(lambda tracker: tracker.charts_path() if job.sweep else None, unrecorded)
    except KeyboardInterrupt as stopped:  # a second Ctrl-C, or one between two trials
        raise KeyboardInterrupt(str(stopped) or f"{job.folder.again} continues it") from None
    return Ended(outcomes, page.result(), report, interrupted)


def _reported(job: Job, outcomes: Mapping[str, Outcome], recording: Recorder) -> Path | None:
    """Write the report of a job, and log it to MLflow. Returns its page; None, after a message, if it failed."""
    try:
        written = reports.write(collected(job.folder, job.experiment, job.cases, outcomes), job.folder.path)
    except Exception as error:  # an error of the report is not to end a sweep with trials of many hours
        again = f"{spelled('report')} {shlex.quote(str(job.folder.path))}"
        say(f"the report was not written ({error}); nothing that was trained is lost by it: {again}")
        return None
    for folder in dict.fromkeys(file.parent for file in written):
        files = [file for file in written if file.parent == folder]
        name = folder.relative_to(job.folder.path).as_posix()
        recording.call(partial(_logged, files, name), unrecorded)
    return written[0]


def _logged(files: Sequence[Path], folder: str, tracker: "Tracker") -> None:
    tracker.log_files(files, folder)


def exit_status(outcomes: Mapping[str, Outcome], left: int, interrupted: bool = False) -> int:
    """Return the exit status of a job.

    Args:
        outcomes: The outcomes of its trials that have ended.
        left: The number of those that have not.
        interrupted: Whether Ctrl-C has stopped them.

    Returns:
        0 if no trial failed and none is left; 2 if all have ended and each failure is a UserError; 130 if some are left
        after Ctrl-C; else 1.
    """
    if interrupted and left:
        return INTERRUPTED
    failed = [outcome for outcome in outcomes.values() if outcome.status == "failed"]
    if failed and not left and all(outcome.user_error for outcome in failed):
        return 2
    return 1 if failed or left else 0


def recorder(job: Job) -> Recorder:
    """Return the recorder of a job, which creates the tables of a new MLflow database. If that fails the tracker tries
    again, and keeps what it cannot deliver."""

    def made() -> "Tracker":
        from dashboards.tracking import Tracker

        if mlflow_store.is_new(job.store):
            try:
                mlflow_store.open_(job.store)
            except UserError as error:
                unrecorded(error)
        again, tags = job.folder.again, _shape(job.nodes)
        return Tracker(job.store, job.folder.path, job.experiment, sweep=job.sweep, tags=tags, again=again)

    return Recorder(made)


def unrecorded(error: Exception) -> None:
    """Print that MLflow cannot record the run."""
    say(f"{error}; nothing that was trained is lost by it")


def _shape(nodes: Sequence[Node]) -> dict[str, str]:
    total = {name: sum(node.get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    return {"cluster.nodes": str(len(nodes))} | {f"cluster.{n.lower()}s": f"{v:g}" for n, v in total.items()}


def _about(case: Case, job: Job, shown: dict[str, dict[str, str]]) -> About:
    """Return what MLflow records of a trial beyond its experiment. ``shown`` caches the files of corpora, by digest."""
    corpus, plan = job.corpora[key(case.experiment)], job.plans[case.id]
    tags = {f"reveals.{n}": said for n, said in enumerate(job.disclosed[case.id])}
    size, why = stack_size(case.experiment, participant_count(case.experiment, corpus))
    tags |= {"engine": case.experiment.engine, "engine.why": engine_reason(case.experiment)}
    tags |= {"stack": str(size), "stack.why": why}
    tags |= {"actors": str(plan.actors), "cpus_per_actor": f"{plan.cpus:g}", "gpus_per_actor": f"{plan.gpus:.4g}"}
    profile = {"clients": len(corpus.clients), "vocabulary": len(corpus.vocabulary)} | totals(corpus)
    if corpus.digest not in shown:
        shown[corpus.digest] = {"corpus.txt": render(corpus, each=True)}
        if not case.experiment.corpus.language:
            shown[corpus.digest][partition.FILE] = partition.picture(corpus)
    sources = {plugin.kept: plugin.source for plugin in case.experiment.plugins if plugin.source is not None}
    return About(tags, Dataset(corpus.name, corpus.digest, profile=profile), shown[corpus.digest] | sources)


def train(job: Job, recording: Recorder) -> tuple[dict[str, Outcome], bool]:
    """Run the trials with a live display and in MLflow.

    Args:
        job: The job.
        recording: Records the trials in MLflow.

    Returns:
        The outcomes of the trials that have ended, and whether Ctrl-C has stopped the others.
    """
    tune, shown, interrupted = job.experiment.tune, dict[str, dict[str, str]](), False
    with progress(job.cases) as display:
        callback = TrialCallback(
            job.cases,
            recording,
            display,
            history=lambda case: history(job.folder.case(case) / "checkpoint"),
            about=lambda case: _about(job.case(case.id), job, shown),
            on_end=job.folder.record,
            waiting=lambda case: waiting_for(job.plans[case]),
            in_use=in_use,
            fits=lambda case: fits(job.plans[case]),
            losses=Losses(job.folder.lost, job.folder.keep_lost),
        )
        try:
            now = time.time()
            callback.record("open", lambda tracker: tracker.open(now))
            with last_words(f"{job.folder.again} continues it") as words, watching_ray(words.end):
                train_cases(job, callback)
            if callback.over:
                raise callback.over
        except Interrupted:  # what was recorded is delivered, and reported on
            interrupted = True
        except OwnershipLostError as error:
            callback.over = error  # MLflow's runs are another command's: nothing is written to them
            recording.call(lambda tracker: tracker.leave(), unrecorded)
            raise
        finally:
            outcomes = callback.outcomes
            winner = best(job.cases, outcomes, tune.metric, tune.direction)
            whole = not job.left(outcomes)
            found = [(group, metrics_of(group, outcomes)) for group in groups(job.cases)]
            first = next((one for one in found if one[0] == winner), None)
            status: RunStatus = "FINISHED" if whole else "KILLED"
            end = time.time()
            callback.record("close", lambda tracker: tracker.close(status, first, found, end))
    return outcomes, interrupted
