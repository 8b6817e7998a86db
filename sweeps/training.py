"""The training of a job's trials by Ray Tune. Those whose nodes were lost are planned again."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from actors import cluster, pulse, schedulers
from actors import sweep as tune_sweep
from actors.interrupt import Interrupted
from actors.placement import Node, counted, room
from actors.shipment import Shipment, ship
from actors.trial import Assignment
from dashboards.callback import DisplacedError, TrialCallback
from dashboards.pending import Reminder
from dashboards.trial import Ended, Outcome, say
from fedtext.client.audit_runner import check_audits
from fedtext.client.shadows import simulates
from fedtext.errors import UserError
from fedtext.parameters import needs_table
from fedtext.records import RoundRecord
from fedtext.runtime.remote import store_variables
from fedtext.state.checkpoint import history
from fedtext.state.seal import state_key
from sweeps.arrange import arranged_again
from sweeps.job import Job, key
from sweeps.population import Population
from sweeps.suggested import Suggested
from tune_spaces.cases import Case

LOOK_S = 2.0  # seconds between two attempts to plan trials for which there is no node


def train_cases(job: Job, callback: TrialCallback) -> None:
    """Run the trials that have not ended yet.

    Raises:
        Interrupted: Ctrl-C has stopped them.
        OwnershipLostError: Another command has continued the run.
    """
    if job.evolving:
        Population(job, *job.evolving).run(partial(_train, job, callback), callback)
    else:
        _train(job, callback, {})


def _train(job: Job, callback: TrialCallback, until: Mapping[str, int]) -> None:
    """Run the trials that have not ended yet; those of ``until`` up to the round there."""
    experiment = job.experiment
    reached = {case.id: history(job.folder.case(case.id) / "checkpoint") for case in job.cases}
    ended = _ended(job, reached)
    baselines = [case.id for case in job.cases if case.baseline]
    rounds = max(case.experiment.training.rounds for case in job.cases)
    order = schedulers.scheduler(experiment.tune, rounds, baselines)
    if isinstance(order, schedulers.Sparing):
        order.remember({case: records for case, records in reached.items() if records})
    for case_id, status in ended.items():
        if case_id not in callback.outcomes:
            callback.restore(case_id, Outcome(status, tuple(reached[case_id])))
    assignment, restarts = Assignments(job, until), experiment.resources.max_restarts
    callback.servers.lost = set()  # of a population, each generation has a second attempt
    if job.searched:
        source = Suggested(job, callback, ended, assignment)
        while True:
            search = partial(tune_sweep.search, source, [callback], order, Concurrent(job, job.plans), restarts)
            again = _displaced(search, job, callback)
            if not again:
                return
            source.waiting.extendleft(reversed(again))
    left, reuse = _left(job, callback, until), True
    while left:
        trials = {case.id: assignment(case) for case in left}
        run = partial(tune_sweep.run, trials, [callback], order, Concurrent(job, trials), restarts, reuse)
        displaced, lost = _displaced(run, job, callback, until), callback.servers.lost or set()
        if lost:  # once more, each in a process of its own
            reuse, callback.servers.lost = False, None
        left = [case for case in _left(job, callback, until) if case in displaced or case.id in lost]


def _left(job: Job, callback: TrialCallback, until: Mapping[str, int]) -> list[Case]:
    """Return the cases that have neither ended nor reached the round of ``until``."""
    open_ = [case for case in job.cases if case.id not in callback.outcomes]
    return [
        case
        for case in open_
        if case.id not in until or len(history(job.folder.case(case.id) / "checkpoint")) < until[case.id]
    ]


def _displaced(
    run: Callable[[], None], job: Job, callback: TrialCallback, until: Mapping[str, int] | None = None
) -> list[Case]:
    """Run trials, and plan those again that have lost their place. It waits until there are nodes for them.

    Args:
        run: Runs the trials.
        job: The job. It gets the new plans.
        callback: Collects the trials that have lost their place.
        until: The rounds after which trials pause, by case. If a trial has lost its place, all others that are left are
            planned again with it: Tune has not begun them. None: whoever suggests cases has those still.

    Returns:
        These trials.

    Raises:
        Interrupted: Ctrl-C, while the trials run or wait for nodes.
    """
    with suppress(DisplacedError):
        run()
    cases = [case for case in job.cases if case.id in callback.displaced and case.id not in callback.outcomes]
    if cases and until is not None:
        cases = _left(job, callback, until)
    callback.displaced = set()
    reminder = Reminder()
    try:
        while cases:
            try:
                sentence = arranged_again(job, cases)
                say(f"{counted(len(cases), 'trial')} planned again: {sentence}")
                break
            except UserError as error:
                if reminder.due(str(error)):
                    say(f"waiting for nodes for {counted(len(cases), 'trial')}: {error}")
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        raise Interrupted from None
    return cases


def _ended(job: Job, reached: Mapping[str, Sequence[RoundRecord]]) -> dict[str, Ended]:
    """Return the cases that need not run again, with how they ended. A case that has finished with fewer rounds than it
    now has is not among them. ``reached`` has the records of each."""
    rounds, found = {case.id: case.experiment.training.rounds for case in job.cases}, job.folder.ended()
    last = {case: reached[case][-1].round for case in found if reached.get(case)}
    return {case: found[case] for case, round_ in last.items() if found[case] != "finished" or round_ >= rounds[case]}


class Concurrent:
    """The number of trials at the same time: as planned, and more of the same share once nodes have joined."""

    def __init__(self, job: Job, cases: Iterable[str]) -> None:
        """Create it.

        Args:
            job: The job, whose nodes are those that its trials were planned for.
            cases: The cases that are to run.
        """
        self.asked = job.experiment.tune.concurrent
        self.plans, self.nodes = [job.plans[case] for case in cases], list(job.nodes)
        self.most = max(plan.trials for plan in self.plans) if self.asked == "auto" else self.asked

    def __call__(self) -> int:
        """Return the number. Whoever runs trials asks again and again."""
        if self.asked == "auto" and (there := self._room(cluster.nodes())) > max(self.most, self._room(self.nodes)):
            self.most = there
            say(f"the cluster has grown: up to {there} trials run side by side from now on")
        return self.most

    def _room(self, nodes: Sequence[Node]) -> int:
        """Return how many trials of the planned shares fit on nodes."""
        return max(room(nodes, plan.cpus, plan.gpus) // plan.actors for plan in self.plans)


class Assignments:
    """The assignments of a job's cases. A corpus is put into the object store once."""

    def __init__(self, job: Job, until: Mapping[str, int]) -> None:
        self.job, self.until = job, until
        self.shipments: dict[tuple[str, bool, bool, bool, bool], Shipment] = {}
        self.checked: set[tuple[str, str]] = set()  # corpora and audits

    def __call__(self, case: Case) -> Assignment:
        """Return the assignment of a case."""
        one = case.experiment
        corpus, asked = self.job.corpora[key(one)], (key(one), repr(one.audits))
        tests = one.evaluation.union is not None
        depends = (key(one), one.method.pooled, tests, simulates(one), needs_table(one, corpus))
        if asked not in self.checked:
            check_audits(one, corpus)
            self.checked.add(asked)
        if depends not in self.shipments:
            self.shipments[depends] = ship(one, corpus)
        folder, until = self.job.folder.case(case.id), self.until.get(case.id)
        plan, copy = self.job.plans[case.id], self.job.folder.copy
        beats = pulse.file_of(case.id)
        given = one, self.shipments[depends], plan, folder, copy, until, beats, state_key()
        return Assignment(*given, store_variables())
