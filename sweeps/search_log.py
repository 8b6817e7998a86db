"""The log of a search in the run's folder, from which it is repeated when the run is resumed."""

import json
from pathlib import Path

from fedtext.config.experiment import Experiment
from fedtext.config.files import Content
from fedtext.runtime import durable
from sweeps.folder import RunFolder
from sweeps.job import Job, Searched
from sweeps.points import LOG
from sweeps.stored import Log, stored
from tune_spaces.search import Search


def begun_search(
    content: Content, experiment: Experiment, source: str, data: Path | None, folder: RunFolder
) -> Searched | None:
    """Return the search of an experiment with its first points, or with those of the run in ``folder``.

    Args:
        content: The content of the experiment file, after overrides.
        experiment: The experiment.
        source: The name of the file, for messages.
        data: The folder of corpora given with --data, if any.
        folder: The run's folder.

    Returns:
        The search; None if the experiment has none.

    Raises:
        UserError: The space cannot be searched, or the installed Optuna suggests other points than the run has.
    """
    if experiment.tune.search == "random":
        return None
    search, log = Search(experiment), folder.path / LOG
    if log.is_file():
        found = stored(log, Log)
        search.restore({"rounds": folder.rounds(experiment), **found})  # earlier versions did not write them
    while search.ask() is not None:  # those that depend on no further results
        pass
    return Searched(search, content, source, data)


def write_log(job: Job) -> None:
    """Write the log of a job's search, if it has one."""
    if job.searched:
        durable.write(job.folder.path / LOG, json.dumps(job.searched.search.log(), indent=1))
