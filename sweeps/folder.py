"""The folder of a run: its experiment, how each case ended, and its state."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dashboards.losses import Lost
from dashboards.trial import Outcome, say
from dashboards.versions import git_state, versions
from fedtext.config.experiment import Experiment
from fedtext.config.files import Content, keep_plugins, resolved
from fedtext.config.packages import needed_by
from fedtext.errors import OwnershipLostError, UserError, option, spelled, writing
from fedtext.runtime import durable
from fedtext.runtime.folders import stored as named
from fedtext.runtime.lock import lock
from fedtext.runtime.remote import Remote
from fedtext.state.copy import Copy
from fedtext.state.seal import check_key, state_key
from sweeps import names
from sweeps.begun import Begun
from sweeps.places import LOSSES, OUTCOME, PLAN, RESOLVED
from sweeps.stored import About, stored
from sweeps.stored import Outcome as Ended
from tune_spaces.cases import Case

PROBE = 1 << 16  # bytes: more than any file that is written before the first round


@dataclass(frozen=True)
class RunFolder(Begun):
    """``<storage>/<run>``: plan.json, and a folder for each case with its checkpoint and, once ended, its outcome.
    ``copy`` is its copy at a URI, if ``storage`` is one."""

    copy: Copy | None = None

    @staticmethod
    def new(storage: Path, name: str | None, experiment: str, command: str) -> "RunFolder":
        """Return the folder of a new run. It is not created yet.

        Args:
            storage: The folder of all runs.
            name: Name of the run; None: made of the experiment's name and the time.
            experiment: Name of the experiment.
            command: The command that begins the run, such as ``sweep``.

        Raises:
            UserError: The name cannot be a folder's, or there is such a run.
        """
        path = names.new(storage, name, experiment)
        again = names.again(path, command)
        if (path / PLAN).exists():
            raise UserError(f"the run {path.name} exists: continue it by {again}, or choose another {option('name')}")
        return RunFolder(path, again)

    def copied(self, remote: Remote, command: str) -> "RunFolder":
        """Return the folder with a copy at a URI.

        Args:
            remote: The URI of all runs.
            command: The command that begins the run.

        Raises:
            UserError: There is such a run.
        """
        copy = Copy(self.path, remote / self.path.name)
        again = names.again_at(copy.remote, command)
        if copy.exists(PLAN):
            raise UserError(f"the run {copy.remote} exists: continue it by {again}, or choose another {option('name')}")
        return replace(self, again=again, copy=copy)

    @staticmethod
    def begun(storage: Path, run: str, command: str) -> "RunFolder":
        """Return the folder of a run to resume.

        Args:
            storage: The folder of all runs.
            run: Name or path of the run.
            command: The command that resumes it, such as ``sweep``.

        Raises:
            UserError: There is none, or another command began it.
        """
        found = RunFolder.found(storage, run, option("resume"), command)
        by = found._plan().get("command") or command
        if by != command:
            again = names.again(found.path, by)
            raise UserError(f"{option('resume')}: {spelled(by)} began {found.path.name}: continue it by {again}")
        return found

    @staticmethod
    def found(storage: Path, run: str, what: str, command: str | None = None) -> "RunFolder":
        """Return the folder of a run that exists.

        Args:
            storage: The folder of all runs.
            run: Name or path of the run.
            what: Beginning of the message if there is none.
            command: The command that continues it; None: the one that began it.

        Raises:
            UserError: There is none.
        """
        path = names.find(storage, run, what)
        command = command or RunFolder(path).command or "sweep"
        copy = Copy.of(path)
        return RunFolder(path, names.again_at(copy.remote, command) if copy else names.again(path, command), copy)

    def create(
        self,
        content: Content,
        experiment: Experiment,
        command: str | None = None,
        data: Path | None = None,
        cases: Sequence[Case] = (),
    ) -> None:
        """Create the folder, and write plan.json. From here on the run can be resumed.

        Args:
            content: The content of the experiment file.
            experiment: The experiment.
            command: The command by which the run can be resumed by its name alone; None: there is none. The folder is
                then shared by commands whose cases have names of their own, and no trial of it is made longer.
            data: The folder given with --data, if any.
            cases: The planned cases, for lists of runs.
        """
        if experiment.plugins:
            content = content | {"plugins": [plugin.kept for plugin in experiment.plugins]}
        before, now = self.versions(), versions() | git_state()
        plan: dict[str, Any] = {"content": content, "command": command, "data": named(data) if data else None}
        plan["versions"] = before if before[-1:] == [now] else [*before, now]
        shared = self.trials() if command is None else {}
        plan["trials"] = shared | {case.id: shared.get(case.id, About()) | _about(case) for case in cases}
        key = state_key()
        plan["key"] = key.id if key else None
        needed = needed_by([experiment, *(case.experiment for case in cases)])
        there = self._plan().get("packages", []) if command is None else []
        plan["packages"] = needed + [package for package in there if package not in needed]
        new, longer = not self.path.exists(), command is not None and self.longer(experiment)
        with writing(self.path, "storage"):
            try:
                durable.make_folder(self.path)
                self._lock()
                if self.copy:
                    self.copy.record()
                for case, status in self.ended().items() if longer else ():  # first: until the plan has the new rounds,
                    if status == "finished":  # a command that is killed here starts again from here
                        (self.case(case) / OUTCOME).unlink()
                keep_plugins(experiment, self.path)
                durable.write(self.path / RESOLVED, resolved(experiment))
                durable.write(self.path / PLAN, json.dumps(plan, indent=2))
            except OSError:
                if new:
                    shutil.rmtree(self.path, ignore_errors=True)
                raise
        self.copy_files()

    def owned(self) -> "RunFolder":
        """Return the folder as the one that this process works on: other machines stop working on it.

        Raises:
            UserError: It has a copy, which cannot be written.
        """
        return replace(self, copy=self.copy.take()) if self.copy else self

    def copy_files(self) -> None:
        """Bring the copy up to date, if there is one, but for checkpoints, which each trial copies.

        Raises:
            OwnershipLostError: Another command has continued the run.
            UserError: It cannot be written.
        """
        if self.copy:
            self.copy.push()

    def complete_copy(self) -> None:
        """Copy all that the copy lacks, if there is one, once no trial runs.

        Raises:
            OwnershipLostError: Another command has continued the run.
            UserError: It cannot be written.
        """
        try:
            if self.copy:
                self.copy.complete()
        except OwnershipLostError:
            raise
        except UserError as error:
            raise UserError(
                f"{error}; the run is whole in {self.path}, its copy is not: complete it here by {self.again}"
            ) from error

    def try_to_copy_files(self) -> None:
        """Bring the copy up to date while trials run. An error is printed, the first one of an outage: they go on, and
        the end of the job tries again.

        Raises:
            OwnershipLostError: Another command has continued the run.
        """
        told = self.copy is not None and self.copy.outage.failed
        try:
            self.copy_files()
        except OwnershipLostError:
            raise
        except UserError as error:
            if not told:
                say(f"{error}; it is tried again later, and at the end")

    def add(self, cases: Sequence[Case]) -> None:
        """Add cases that a search has suggested to plan.json, for lists of runs."""
        self.note({case.id: _about(case) for case in cases})

    def note(self, known: Mapping[str, About]) -> None:
        """Add what is known of trials to plan.json, by the id of their case."""
        plan, trials = self._plan(), self.trials()
        plan["trials"] = trials | {case: trials.get(case, About()) | about for case, about in known.items()}
        durable.write(self.path / PLAN, json.dumps(plan, indent=2))

    def claim(self) -> None:
        """Check that the run's folder can be written, and reserve a folder that exists for this process.

        Nothing is left behind where there was nothing.

        Raises:
            UserError: it cannot be written, another command works on this run, or it was begun with another key.
        """
        key = state_key()
        with writing(self.path, "storage"):
            with tempfile.TemporaryFile(dir=self._nearest()) as probe:
                probe.write(bytes(PROBE))
                probe.flush()
                os.fsync(probe.fileno())
            if (self.path / PLAN).exists():
                self._lock()
                check_key(key, self._plan().get("key"), self.path)
        if self.copy:
            self.copy.check_writable()

    def check_space(self, needed: int) -> None:
        """Raise UserError if the disk has less free space than ``needed`` bytes."""
        free = shutil.disk_usage(self._nearest()).free
        if free < needed:
            raise UserError(
                f"storage: {self.path} has {free / 1e6:,.1f} MB free, and the checkpoints of this run take at least "
                f"{needed / 1e6:,.1f} MB: free space there, or choose another folder with storage=FOLDER"
            )

    def _nearest(self) -> Path:
        """Return the folder itself, or the nearest existing one above it."""
        return next(path for path in (self.path, *self.path.parents) if path.exists())

    def _lock(self) -> None:
        if not lock(self.path):
            raise names.being_worked_on(self.path)

    def case(self, case_id: str) -> Path:
        """Return the folder of a case."""
        return self.path / case_id

    def ended(self) -> dict[str, Any]:
        """Return the status of the cases that have ended, except for failed ones, which run again."""
        return {case: one.status for case, one in self.statuses().items() if one.status != "failed"}

    def done(self, experiment: Experiment) -> dict[str, Any]:
        """Return the status of the cases that have ended, except for those that train on in a run that goes on with
        the rounds of ``experiment``."""
        goes_on = "finished" if self.longer(experiment) else None
        return {case: status for case, status in self.ended().items() if status != goes_on}

    def statuses(self) -> dict[str, Outcome]:
        """Return how each case ended, without its records. Cases that have not ended are left out."""
        found = {file.parent.name: stored(file, Ended) for file in self.path.glob(f"*/{OUTCOME}")}
        return {case: Outcome(one["status"], error=one.get("error", "")) for case, one in found.items()}

    def record(self, case_id: str, outcome: Outcome) -> None:
        """Write the outcome of a case. Raises OwnershipLostError if another command has continued the run."""
        durable.make_folder(self.case(case_id))
        durable.write(self.case(case_id) / OUTCOME, json.dumps({"status": outcome.status, "error": outcome.error}))
        self.try_to_copy_files()

    def lost(self, case_id: str) -> Lost:
        """Return what processes that died or hung have cost a case. A damaged file is said, and counted as none."""
        file = self.case(case_id) / LOSSES
        try:
            return stored(file, Lost) if file.exists() else Lost()
        except UserError as error:
            say(f"{error}; restarts of {case_id} are counted from zero")
            return Lost()

    def keep_lost(self, case_id: str, lost: Lost) -> None:
        """Write what processes that died or hung have cost a case, for a command that continues it."""
        durable.write(self.case(case_id) / LOSSES, json.dumps(asdict(lost)))


def _about(case: Case) -> About:
    made = case.experiment
    return {"method": made.method.name, "baseline": case.baseline, "rounds": made.training.rounds}
