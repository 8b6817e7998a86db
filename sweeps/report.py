"""Reports of runs and sweeps: what ``dashboards.report`` is given, from a run's folder or from a job that has ended."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dashboards import report as reports
from dashboards.report import Sweep
from dashboards.trial import Case, Outcome
from fedtext.config.experiment import Experiment
from fedtext.config.files import validate
from fedtext.errors import UserError, spelled
from fedtext.records import RoundRecord
from fedtext.runtime.lock import is_locked
from fedtext.state.checkpoint import history
from fedtext.state.machines import machines_of
from sweeps.folder import RunFolder
from sweeps.places import PLAN, STORAGE, home
from sweeps.points import suggested_points
from sweeps.population import evolved
from tune_spaces.cases import cases as make_cases


def report(run: str) -> list[Path]:
    """Write the report of a run or sweep from its folder, as far as it has come. Neither Ray nor MLflow is asked.

    Args:
        run: Name of the run, or its folder.

    Returns:
        The files; the page is the first one.

    Raises:
        UserError: There is no such run, platform.reproduce began it, or the report cannot be written.
    """
    folder = RunFolder.found(home() / STORAGE, run, "report")
    if not folder.command:
        raise UserError(
            f"{folder.path.name} does not record its trials: {spelled('reproduce')}, which began it, writes its own "
            f"tables to docs/reproductions/tables; name a run of {spelled('run')} or {spelled('sweep')}"
        )
    content = folder.content()
    source = str(folder.path / PLAN)
    experiment = validate(content, source)
    cases = make_cases(content, experiment, source, suggested_points(folder.path))
    if experiment.tune.scheduler == "pbt":
        cases = evolved(cases, folder, experiment, content, source)
    found = replace(collected(folder, experiment, cases), running=is_locked(folder.path))
    return reports.write(found, folder.path)


def collected(
    folder: RunFolder, experiment: Experiment, cases: Sequence[Case], outcomes: Mapping[str, Outcome] | None = None
) -> Sweep:
    """Return the content of a report.

    Args:
        folder: The run's folder.
        experiment: The experiment, with its space.
        cases: The planned trials.
        outcomes: The outcomes of trials that have ended; None: they are read from the folder.
    """
    found, left = dict(outcomes or {}), dict[str, tuple[RoundRecord, ...]]()
    problems, unread = [], set[str]()
    status = folder.statuses()
    for case in cases:
        if case.id in found:
            continue
        try:
            records = tuple(history(folder.case(case.id) / "checkpoint"))
        except UserError as error:
            problems.append(f"The records of {case.id} cannot be read: {error}.")
            unread.add(case.id)
            continue
        if case.id in status:
            found[case.id] = Outcome(status[case.id].status, records, status[case.id].error)
        else:
            left[case.id] = records
    machines = {name: None for case in cases for name in machines_of(folder.case(case.id) / "checkpoint")}
    about = commands(folder), folder.versions(), tuple(machines)
    return Sweep(folder.path.name, experiment, cases, found, left, problems, *about, unread=unread)


def commands(folder: RunFolder) -> dict[str, str]:
    """Return the commands that repeat a run, continue it and report it, by purpose."""
    data = folder.begun_with()
    run = shlex.split(folder.again)[-1]
    again = f"{spelled(folder.command or 'sweep')} {shlex.quote(str(folder.path / 'experiment.yaml'))}"
    again += f" --data {shlex.quote(data)}" if data else ""
    return {"repeat": again, "continue": folder.again, "report": f"{spelled('report')} {shlex.quote(run)}"}
