"""The folder of a run: its experiment, how each case ended, and its state."""

import fcntl
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dashboards.trial import Outcome
from dashboards.versions import git_state, versions
from fedtext.config.differences import differences, flattened
from fedtext.config.experiment import Experiment
from fedtext.config.files import Content, keep_plugins, resolved, validate, with_plugins
from fedtext.errors import UserError, option, spelled, writing
from fedtext.runtime.folders import check_folder, folder_of, stored
from fedtext.runtime.remote import Remote, is_uri
from fedtext.state.copy import Copy
from fedtext.state.fingerprint import SCIENCE
from sweeps.extension import OTHERWISE, not_extended
from sweeps.places import LOCK, OUTCOME, PLAN, RESOLVED, STORAGE, home, write
from tune_spaces.cases import Case

PROBE = 1 << 16  # bytes: more than any file that is written before the first round
_LOCKED: set[Path] = set()  # the runs that this process has locked
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # as of the experiment


@dataclass(frozen=True)
class RunFolder:
    """``<storage>/<run>``: plan.json, and a folder for each case with its checkpoint and, once ended, its outcome.
    ``again`` is the command that continues the run, for messages; ``copy`` its copy at a URI, if ``storage`` is one."""

    path: Path
    again: str = "the same command"
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
        if name is not None and not re.fullmatch(NAME, name):
            raise UserError(
                f"{option('name')}: {name!r} cannot be a folder's name; use letters, digits, '.', '_' and '-'"
            )
        path = storage / (name or f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}")
        again = _again(path.resolve(), command)
        if (path / PLAN).exists():
            raise UserError(f"the run {path.name} exists: continue it by {again}, or choose another {option('name')}")
        return RunFolder(path.resolve(), again)

    def copied(self, remote: Remote, command: str) -> "RunFolder":
        """Return the folder with a copy at a URI.

        Args:
            remote: The URI of all runs.
            command: The command that begins the run.

        Raises:
            UserError: There is such a run.
        """
        copy = Copy(self.path, remote / self.path.name)
        again = _again_at(copy.remote, command)
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
            raise UserError(
                f"{option('resume')}: platform.{by} began {found.path.name}: continue it by {_again(found.path, by)}"
            )
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
        remote = Remote(run, what) if is_uri(run) else None
        if remote and remote.local is None:
            if not (remote / PLAN).info():
                raise UserError(f"{what}: there is no run at {remote}")
            Copy(home() / STORAGE / remote.name, remote).pull()
            run = str(home() / STORAGE / remote.name)
        path = Path(run) if run and (Path(run) / PLAN).is_file() else storage / run
        if not (path / PLAN).is_file():
            there = sorted((plan.parent for plan in storage.glob(f"*/{PLAN}")), key=lambda p: p.stat().st_mtime)
            known = f"; the latest there are {', '.join(p.name for p in there[-3:])}" if there else ""
            raise UserError(f"{what}: there is no run {run} in {storage}{known}")
        path = path.resolve()
        command = command or RunFolder(path).command or "sweep"
        copy = Copy.of(path)
        return RunFolder(path, _again_at(copy.remote, command) if copy else _again(path, command), copy)

    @property
    def command(self) -> str | None:
        """The command that began the run; None if it cannot be continued from its folder alone."""
        return self._plan().get("command")

    def begun_with(self) -> str | None:
        """Return the folder given with --data, if any."""
        return self._plan().get("data")

    def versions(self) -> list[dict[str, str]]:
        """Return the versions of the software that worked on the run, in order."""
        return self._plan().get("versions", [])

    def content(self) -> Content:
        """Return the content of the experiment that the run was begun with.

        Raises:
            UserError: The run cannot be continued from it alone: platform.reproduce derives its cases from a paper's
                file, and earlier versions did not store the rest.
        """
        plan = self._plan()
        if not plan.get("command"):
            raise UserError(
                f"{option('resume')}: {self.path.name} does not record how it was begun: name its experiment, "
                f"overrides and {option('data')} as well (what platform.reproduce began goes on when that command is "
                "given again)"
            )
        return self._content()

    def check(self, asked: Experiment) -> None:
        """Raise UserError if the run would be continued with another experiment. Its resources and tracking may
        change."""
        plan = self._plan()
        begun = validate(self._content(), str(self.path / PLAN))
        compared = SCIENCE | {"name", "space", "baselines", "tune", "seeds"}
        before, now = (
            flattened(one.model_dump(mode="json", include=compared))
            | {f"plugins.{plugin.name}": plugin.digest[:8] for plugin in one.plugins}
            for one in (begun, asked)
        )
        changed = differences(before, now)
        if not changed:
            return
        if not (why := not_extended(begun, asked, changed, self.path)):
            return
        if why != OTHERWISE:
            raise UserError(f"{option('resume')}: {self.path.name} cannot have more {why}; start a new run")
        how = f"by {self.again}" if plan.get("command") else "with the experiment it was begun with"
        changes = ", ".join(changed.values())
        raise UserError(
            f"{option('resume')}: {self.path.name} was begun otherwise ({changes}): continue it {how}, or start a "
            "new run"
        )

    def longer(self, asked: Experiment) -> bool:
        """Whether the run was begun with fewer rounds than ``asked`` has."""
        plan = self._plan()
        return bool(plan) and validate(self._content()).training.rounds < asked.training.rounds

    def data(self, given: str | Path | None) -> Path | None:
        """Return the folder of corpora: ``given`` by --data, else the one that the run was begun with.

        Raises:
            UserError: It does not exist.
        """
        if given is not None:
            folder = folder_of(given, option("data"))
            check_folder(folder)
            return folder.resolve()
        begun = self._plan().get("data")
        if begun and not is_uri(begun) and not Path(begun).is_dir():
            raise UserError(
                f"{self.path.name} was begun with {option('data', begun)}, and there is no such folder now: say with "
                f"{option('data', 'FOLDER')} where it is"
            )
        return folder_of(begun, option("data")) if begun else None

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
            command: The command by which the run can be resumed by its name alone; None: there is none.
            data: The folder given with --data, if any.
            cases: The planned cases, for lists of runs.
        """
        if experiment.plugins:
            content = content | {"plugins": [plugin.kept for plugin in experiment.plugins]}
        before, now = self.versions(), versions() | git_state()
        worked = before if before[-1:] == [now] else [*before, now]
        plan = {"content": content, "command": command, "data": stored(data) if data else None, "versions": worked}
        plan["trials"] = {case.id: _about(case) for case in cases}
        new, longer = not self.path.exists(), self.longer(experiment)
        with writing(self.path, "storage"):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock()
                for case, status in self.ended().items() if longer else ():  # first: until the plan has the new rounds,
                    if status == "finished":  # a command that is killed here starts again from here
                        (self.case(case) / OUTCOME).unlink()
                keep_plugins(experiment, self.path)
                write(self.path / RESOLVED, resolved(experiment))
                write(self.path / PLAN, json.dumps(plan, indent=2))
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
            UserError: It cannot be written, or another machine works on the run.
        """
        if self.copy:
            self.copy.push()

    def try_to_copy_files(self) -> None:
        """Bring the copy up to date while trials run. An error is printed: they go on, and the end of the job tries
        again."""
        try:
            self.copy_files()
        except UserError as error:
            print(f"{error}; it is tried again at the end", file=sys.stderr, flush=True)

    def add(self, cases: Sequence[Case]) -> None:
        """Add cases that a search has suggested to plan.json, for lists of runs."""
        plan = self._plan()
        plan["trials"] = plan.get("trials", {}) | {case.id: _about(case) for case in cases}
        write(self.path / PLAN, json.dumps(plan, indent=2))

    def claim(self) -> None:
        """Check that the run's folder can be written, and reserve a folder that exists for this process.

        Nothing is left behind where there was nothing.

        Raises:
            UserError: it cannot be written, or another command works on this run.
        """
        with writing(self.path, "storage"):
            with tempfile.TemporaryFile(dir=self._nearest()) as probe:
                probe.write(bytes(PROBE))
                probe.flush()
                os.fsync(probe.fileno())
            if (self.path / PLAN).exists():
                self._lock()
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
        if self.path in _LOCKED:
            return
        lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT)  # open, and so locked, until this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise UserError(f"the run {self.path.name} is being worked on by another command: wait for it") from error
        _LOCKED.add(self.path)

    def _plan(self) -> dict[str, Any]:
        file = self.path / PLAN
        return json.loads(file.read_text()) if file.is_file() else {}

    def _content(self) -> Content:
        """Return the stored content of the experiment, with the plug-ins that are kept here."""
        return with_plugins(self._plan()["content"], self.path)

    def case(self, case_id: str) -> Path:
        """Return the folder of a case."""
        return self.path / case_id

    def ended(self) -> dict[str, Any]:
        """Return the status of the cases that have ended, except for failed ones, which run again."""
        found = {file.parent.name: json.loads(file.read_text())["status"] for file in self.path.glob(f"*/{OUTCOME}")}
        return {case: status for case, status in found.items() if status != "failed"}

    def statuses(self) -> dict[str, Outcome]:
        """Return how each case ended, without its records. Cases that have not ended are left out."""
        found = {file.parent.name: json.loads(file.read_text()) for file in self.path.glob(f"*/{OUTCOME}")}
        return {case: Outcome(one["status"], error=one.get("error", "")) for case, one in found.items()}

    def record(self, case_id: str, outcome: Outcome) -> None:
        """Write the outcome of a case."""
        self.case(case_id).mkdir(parents=True, exist_ok=True)
        write(self.case(case_id) / OUTCOME, json.dumps({"status": outcome.status, "error": outcome.error}))
        self.try_to_copy_files()


def _about(case: Case) -> dict[str, Any]:
    made = case.experiment
    return {"method": made.method.name, "baseline": case.baseline, "rounds": made.training.rounds}


def places(storage: str) -> tuple[Path, Remote | None]:
    """Return the local folder of runs for the key ``storage``, and where their copies are; None: there are none.

    Raises:
        UserError: It is a URI that cannot be used.
    """
    if not is_uri(storage):
        return home() / storage, None
    remote = Remote(storage, "storage")
    return (remote.local, None) if remote.local else (home() / STORAGE, remote)


def _again_at(remote: Remote, command: str) -> str:
    """Return the command that continues the run with a copy at a URI, on whatever machine."""
    return f"python -m platform.{command} --resume {shlex.quote(remote.uri)}"


def _again(path: Path, command: str) -> str:
    """Return the command that continues the run in ``path``. Its name is enough if it is in the default storage."""
    run = path.name if path.parent == (home() / STORAGE).resolve() else str(path)
    return f"{spelled(command)} --resume {shlex.quote(run)}"
