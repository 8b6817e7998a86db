"""The cases of a search, made as its points are suggested."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from actors.trial import Assignment
from dashboards.callback import TrialCallback
from dashboards.trial import Outcome, say
from fedtext.config.tune import Tune
from fedtext.server.last import last_values
from sweeps.arrange import added
from sweeps.job import Job
from sweeps.search_log import write_log
from tune_spaces.cases import Case, suggested_cases
from tune_spaces.search import Result


class Suggested:
    """The cases of a search in the order in which they run, for ``actors.sweep.search``."""

    def __init__(
        self, job: Job, callback: TrialCallback, ended: Collection[str], assignment: Callable[[Case], Assignment]
    ) -> None:
        """Create the source.

        Args:
            job: The job of a search. Cases are added to it.
            callback: Has the outcomes of trials.
            ended: The cases that have ended in an earlier process.
            assignment: Returns the assignment of a case.
        """
        assert job.searched is not None
        self.job, self.searched, self.search = job, job.searched, job.searched.search
        self.callback, self.assignment = callback, assignment
        self.waiting = deque(case for case in job.cases if case.id not in ended)
        self.again: set[str] = set()  # cases that were given up before they started, and are tried once more
        self.groups: dict[str, list[Case]] = {}
        for case in job.cases:
            self._group(case)
        self.judged = 0  # points before this one are known to the search
        self.callback.expect(job.unsuggested)

    def next(self) -> tuple[str, Assignment] | None:
        """Return the next case and its assignment; None if it has to wait for trials that run."""
        while True:
            self._judge()
            if not self.waiting:
                self.waiting.extend(self._lost() or self._suggest())
            if not self.waiting:
                return None
            case = self.waiting.popleft()
            if not case.problem:
                return case.id, self.assignment(case)
            self.callback.refuse(case)

    @property
    def exhausted(self) -> bool:
        """Whether all cases have ended, and there will be no further one."""
        return not self.waiting and not self.job.unsuggested and len(self.callback.outcomes) >= len(self.job.cases)

    def _group(self, case: Case) -> None:
        if not case.baseline:
            self.groups.setdefault(case.group, []).append(case)

    def _suggest(self) -> list[Case]:
        number, point = len(self.search.points), self.search.ask()
        if point is None:
            return []
        job, searched = self.job, self.searched
        cases = added(job, suggested_cases(searched.content, job.experiment, searched.source, number, point))
        write_log(job)  # before they start: on a resume they are known
        job.folder.add(cases)
        job.folder.try_to_copy_files()
        for case in cases:
            self._group(case)
        self.callback.add(cases)
        self.callback.expect(job.unsuggested)
        return cases

    def _lost(self) -> list[Case]:
        lost = (self.callback.servers.lost or set()) - self.again
        self.again |= lost
        return [case for case in self.job.cases if case.id in lost]

    def _judge(self) -> None:
        """Tell the search about points of which all trials have ended."""
        for number, cases in list(enumerate(self.groups.values()))[self.judged :]:
            if all(case.id in self.callback.outcomes for case in cases):
                self.search.end(number, result_of(cases, self.callback.outcomes, self.job.experiment.tune))
                self.judged += number == self.judged


def result_of(cases: Sequence[Case], outcomes: Mapping[str, Outcome], tune: Tune) -> Result:
    """Return the result of a point for a search.

    Args:
        cases: Its cases, one for each seed.
        outcomes: Their outcomes.
        tune: The section ``tune``.
    """
    names, judged = list(tune.objectives), cases if tune.seeds == "inside" else cases[:1]
    found = [outcomes[case.id] for case in judged]
    if any(outcome.status == "failed" for outcome in found):
        return Result()
    if any(outcome.status == "stopped" for outcome in found):
        records = [record for outcome in found for record in outcome.rows if names[0] in record.metrics]
        return Result(rounds=tuple((record.round, record.metrics[names[0]]) for record in records))
    last = [last_values(outcome.rows) for outcome in found]
    missing = [name for name in names if any(name not in values for values in last)]
    if missing:
        say(f"{cases[0].group} has no {missing[0]}: for the search it has failed")
        return Result()
    return Result.of([sum(values[name] for values in last) / len(last) for name in names])
