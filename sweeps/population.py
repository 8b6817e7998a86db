"""Population-based training of a sweep: generations of its trials, with exchanges of parameters between them."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.trial import title
from fedtext.config.experiment import Experiment
from fedtext.config.files import Content
from fedtext.runtime import durable
from fedtext.server.start import participant_count
from fedtext.state.checkpoint import Checkpoints, history
from fedtext.state.fingerprint import fingerprint
from fedtext.state.machines import Machines
from fedtext.state.seal import state_key
from sweeps.folder import RunFolder
from sweeps.job import Job, key
from sweeps.stored import Exploited, Generation, stored
from tune_spaces.cases import Case, suggested_cases
from tune_spaces.cases import cases as make_cases
from tune_spaces.population import Exploit, exploits

if TYPE_CHECKING:
    from dashboards.callback import TrialCallback  # with Ray Tune, which commands import once Ray starts

MARK = "generation.json"  # beside a checkpoint that was taken over
FILE = "population.json"  # the exploits of each generation that has ended, and whether they have been carried out


class Population:
    """The population of a job, as far as it has come."""

    def __init__(self, job: Job, content: Content, source: str) -> None:
        """Create the population, or continue that of the run's folder.

        Args:
            job: The job, whose cases have the values of the last generation.
            content: The content of the experiment file, after overrides.
            source: Its name in messages.
        """
        self.job, self.content, self.source = job, content, source
        first = make_cases(content, job.experiment, source)
        self.begun = list(_replayed(first, job.folder, job.experiment, content, source))
        self.generations = _stored(job.folder)
        self.members = [case.id for case in job.cases if not case.baseline]

    def run(self, train: Callable[[Mapping[str, int]], None], callback: "TrialCallback") -> None:
        """Train all generations.

        Args:
            train: Trains the trials that have not ended up to the rounds that it is given, by case; a trial without
                such a round to its end.
            callback: Is told about changed cases.
        """
        rounds, interval = self.job.experiment.training.rounds, self.job.experiment.tune.interval
        for number, donor, case in self.begun:
            callback.changed(case.id, _told(donor, number * interval, case))
        for generation in range(1, (rounds - 1) // interval + 1):
            if len(self.generations) < generation:
                until = dict.fromkeys(self.members, generation * interval)
                callback.until = until
                train(until)
                if not self._complete(until, callback):
                    return  # of a part of the population nothing is decided
                judged = self._judged(generation)
                made = [Exploited(member=one.member, donor=one.donor, point=one.point) for one in judged]
                self.generations.append({"done": False, "exploits": made})
                self._write()
            if not self.generations[-1]["done"] and len(self.generations) == generation:
                for one in (Exploit(**each) for each in self.generations[-1]["exploits"]):
                    if _carried_out(self.job.folder.case(self.members[one.member])) < generation:
                        self._carry_out(one, generation, callback)
                self.generations[-1]["done"] = True
                self._write()
        callback.until = {}
        train({})

    def _complete(self, until: Mapping[str, int], callback: "TrialCallback") -> bool:
        """Return whether every member has reached its round or ended. Tune returns normally from a SIGUSR1."""
        reached = {member: history(self.job.folder.case(member) / "checkpoint") for member in until}
        return all(
            member in callback.outcomes or (reached[member] and reached[member][-1].round >= round_)
            for member, round_ in until.items()
        )

    def _judged(self, generation: int) -> list[Exploit]:
        experiment = self.job.experiment
        metric, at = experiment.tune.metric, generation * experiment.tune.interval
        points, scores = {}, {}
        for number, member in enumerate(self.members):
            records = history(self.job.folder.case(member) / "checkpoint")
            if records and records[-1].round == at and metric in records[-1].metrics:  # others have failed
                scores[number] = records[-1].metrics[metric]
                points[number] = self.job.case(member).overrides
        return exploits(experiment, points, scores, generation)

    def _carry_out(self, one: Exploit, generation: int, callback: "TrialCallback") -> None:
        """Let a member continue from the checkpoint of its donor, with its new values."""
        round_ = generation * self.job.experiment.tune.interval
        job, member, donor = self.job, self.members[one.member], self.members[one.donor]
        case = _changed(self.content, job.experiment, self.source, one, member, job.case(donor))
        case = replace(case, experiment=job.choose_engine(case.experiment))
        giving = Checkpoints(job.folder.case(donor) / "checkpoint", self._fingerprint(job.case(donor)), state_key())
        state = giving.load()
        assert state is not None
        assert state.round == round_, "no member has gone on since"
        draft, target, old = (job.folder.case(member) / name for name in (".exploit", "checkpoint", ".before"))
        for folder in (draft, old):  # of a process that was killed here
            shutil.rmtree(folder, ignore_errors=True)
        Checkpoints(draft, self._fingerprint(case), state_key()).save(
            state.flat, state.clients, state.history, state.moments, state.selected, state.extra
        )
        durable.write(draft / MARK, json.dumps(generation))
        Machines(draft, self._fingerprint(case)).follow(giving.folder, target)
        if target.exists():
            target.rename(old)
        draft.rename(target)
        durable.sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
        job.cases[job.cases.index(job.case(member))] = case
        callback.change(case, _told(donor, round_, case))

    def _fingerprint(self, case: Case) -> str:
        corpus = self.job.corpora[key(case.experiment)]
        return fingerprint(case.experiment, corpus.content, participant_count(case.experiment, corpus))

    def _write(self) -> None:
        durable.write(self.job.folder.path / FILE, json.dumps(self.generations, indent=1))


def _told(donor: str, round_: int, case: Case) -> str:
    """Return a sentence on a member that goes on from another one as this case."""
    return f"goes on from {donor} after round {round_}: {title(case)}"


def _carried_out(case: Path) -> int:
    """Return the last generation after which a member has taken over a checkpoint; 0 if it has not."""
    mark = case / "checkpoint" / MARK
    return stored(mark, int) if mark.is_file() else 0


def _stored(folder: RunFolder) -> list[Generation]:
    file: Path = folder.path / FILE
    return stored(file, list[Generation]) if file.is_file() else []


def _changed(content: Content, experiment: Experiment, source: str, one: Exploit, member: str, donor: Case) -> Case:
    """Return the case as which a member goes on: with the donor's point if its own new one is no valid experiment."""
    (case,) = suggested_cases(content, experiment, source, one.member, one.point)
    if case.problem:
        (case,) = suggested_cases(content, experiment, source, one.member, donor.overrides)
    return replace(case, id=member, group=member)


def evolved(
    cases: Sequence[Case], folder: RunFolder, experiment: Experiment, content: Content, source: str
) -> list[Case]:
    """Return the cases of a sweep with the values that its population has reached.

    Args:
        cases: The cases with their first values.
        folder: The run's folder.
        experiment: The experiment.
        content: The content of the experiment file, after overrides.
        source: The name of the file, for messages.
    """
    now = {case.id: case for case in cases}
    now |= {case.id: case for _, _, case in _replayed(cases, folder, experiment, content, source)}
    return list(now.values())


def _replayed(
    cases: Sequence[Case], folder: RunFolder, experiment: Experiment, content: Content, source: str
) -> Iterator[tuple[int, str, Case]]:
    """Yield the exploits that have been carried out: the number of the generation that had ended, the donor, and the
    case as which the member goes on. Arguments are those of ``evolved``."""
    members = [case.id for case in cases if not case.baseline]
    now = {case.id: case for case in cases}
    for number, generation in enumerate(_stored(folder), 1):
        for one in (Exploit(**each) for each in generation["exploits"]):
            member, donor = members[one.member], members[one.donor]
            if generation["done"] or _carried_out(folder.case(member)) >= number:
                now[member] = _changed(content, experiment, source, one, member, now[donor])
                yield number, donor, now[member]
