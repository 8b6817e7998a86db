"""Reproductions of papers' tables: their trials are run, and the tables made of their metrics are written."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.asked import Asked, extent
from sweeps.prepare import planned, reached
from sweeps.sources import data_digests, noted
from sweeps.summary import summary
from sweeps.work import Work

if TYPE_CHECKING:
    from dashboards.tracking import Tracker


AGAIN = "--again writes rows anew from their trials, if --seeds is not less than theirs, and trains those that are gone"


def reproduce(asked: Asked, say: Callable[[str], object] = print) -> int:
    """Run tables of a paper, and write them beside the paper's values.

    Tables are extended: rows and seeds that are kept are not run again, and an interrupted command writes the rows that
    have ended.

    Args:
        asked: The tables.
        say: Called with each line of output.

    Returns:
        The exit status: 0 if the tables are complete; 130 after Ctrl-C; else 1, or 2 if each failure is a UserError.

    Raises:
        UserError: There is no such table, or the experiments, data, cluster or tracking server cannot be used.
    """
    work = Work.of(asked)
    say(f"{work.paper.title}, {work.scene}. {extent(work.scale, work.changes)}")
    rows = work.left(say)
    if not any(rows.values()):
        say(f"nothing is left to run: {AGAIN}")
        return 0
    if asked.finished:
        wrote, tables = work.write(rows, work.finished(rows, say))
        say("\n".join([*tables, *map(os.path.relpath, wrote)]) or "no trial of these tables has finished")
        return 0
    cases = {case.id: case for of in rows.values() for row in of.values() for case in row}
    store, folder = reached(work.experiment), work.folder
    folder.claim()
    data = folder.data(asked.data)
    job = planned(asked.cluster, data, work.experiment, list(cases.values()), store, folder, sweep=True)
    digests = data_digests(work.experiment, cases.values(), data, job.corpora)
    work.check_data(rows, lambda of: [digest for case in of if (digest := digests[case.id])])
    folder.create(work.content, work.experiment, cases=list(cases.values()))
    done = work.finished(rows, lambda _: None)
    folder.note(noted(folder, job.cases, done, digests))
    say("\n".join([f"  {len(done)} of {len(cases)} trials are there already", *summary(job)]))
    from sweeps.trials import exit_status, recorder, train, unrecorded  # with Ray Tune, which only now is there

    with recorder(job) as recording:
        outcomes, interrupted = train(job, recording)
        ended = {case: one for case, one in outcomes.items() if case in cases}
        wrote, tables = work.write(rows, {case: one for case, one in ended.items() if one.status == "finished"})
        recording.call(partial(_log, wrote), unrecorded)
        say("\n".join([*tables, *map(os.path.relpath, wrote)]))
        failed = [f"{case}: {one.error}" for case, one in ended.items() if one.status != "finished"]
        left = len(cases) - len(ended)
        if failed or left:
            say("\n".join([*failed, f"{len(failed)} trials failed, {left} have not ended: the same command goes on"]))
            return exit_status(ended, left, interrupted) or 1
    return 0


def _log(written: Sequence[Path], tracker: "Tracker") -> None:
    tracker.log_files(written, "reproductions")
