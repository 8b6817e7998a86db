"""The folder of a run: what it was begun with, how each case ended, and where its state lies."""

import fcntl
import json
import os
import re
import shlex
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.cluster import job_ships_code
from dashboards.trial import Outcome
from fedtext.config.experiment import Experiment
from fedtext.config.files import Content, keep_plugins, resolved, validate, with_plugins
from fedtext.errors import UserError, writing
from fedtext.state.fingerprint import SCIENCE, fixed_length

PLAN, OUTCOME = "plan.json", "outcome.json"
STORAGE: str = Experiment.model_fields["storage"].default
PROBE = 1 << 16  # bytes: more than any file that is written before the first round
_LOCKED: set[Path] = set()  # the runs that this process works on
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # as an experiment's own


def home() -> Path:
    """Where results go: the working folder; or $FEDTEXT_HOME, or ~/fedtext inside a job whose working folder is a copy
    that Ray deletes."""
    if named := os.environ.get("FEDTEXT_HOME"):
        return Path(named).expanduser().resolve()
    return Path.home() / "fedtext" if job_ships_code() else Path.cwd()


@dataclass(frozen=True)
class RunFolder:
    """``<storage>/<run>``: plan.json, and a folder for each case with its checkpoint and, once ended, its outcome.
    ``again`` says what continues the run."""

    path: Path
    again: str = "the same command"

    @staticmethod
    def new(storage: Path, name: str | None, experiment: str, command: str) -> "RunFolder":
        """The folder of a run that ``command`` begins. Raises UserError if it would overwrite another."""
        if name is not None and not re.fullmatch(NAME, name):
            raise UserError(f"--name: {name!r} cannot be a folder's name; use letters, digits, '.', '_' and '-'")
        path = storage / (name or f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}")
        again = _again(path.resolve(), command)
        if (path / PLAN).exists():
            raise UserError(f"the run {path.name} exists: continue it by {again}, or choose another --name")
        return RunFolder(path.resolve(), again)

    @staticmethod
    def begun(storage: Path, run: str, command: str) -> "RunFolder":
        """The folder of a run to resume, by its name or by its path. Raises UserError if there is none, or if it is
        another command's."""
        path = Path(run) if run and (Path(run) / PLAN).is_file() else storage / run
        if not (path / PLAN).is_file():
            there = sorted((plan.parent for plan in storage.glob(f"*/{PLAN}")), key=lambda p: p.stat().st_mtime)
            known = f"; the latest there are {', '.join(p.name for p in there[-3:])}" if there else ""
            raise UserError(f"--resume: there is no run {run} in {storage}{known}")
        found = RunFolder(path.resolve(), _again(path.resolve(), command))
        by = found._plan().get("command") or command
        if by != command:
            raise UserError(f"--resume: platform.{by} began {path.name}: continue it by {_again(found.path, by)}")
        return found

    def content(self) -> Content:
        """The experiment that the run was begun with, as it was written. Raises UserError if that is not enough to
        continue it: platform.reproduce makes its cases otherwise, and earlier versions did not write down the rest."""
        plan = self._plan()
        if not plan.get("command"):
            raise UserError(
                f"--resume: {self.path.name} does not record how it was begun: name its experiment, overrides and "
                "--data as well (what platform.reproduce began goes on when that command is given again)"
            )
        return self._content()

    def check(self, asked: Experiment) -> None:
        """Raises UserError if the run would be continued as another experiment; where it runs and is tracked may
        change."""
        plan = self._plan()
        begun = validate(self._content(), str(self.path / PLAN))
        compared = SCIENCE | {"name", "space", "baselines", "tune", "seeds"}
        before, now = (
            flattened(one.model_dump(mode="json", include=compared))
            | {f"plugins.{plugin.name}": plugin.digest[:8] for plugin in one.plugins}
            for one in (begun, asked)
        )
        keys = [key for key in before | now if before.get(key) != now.get(key)]
        if not keys:
            return
        if keys == ["training.rounds"] and self.longer(asked):
            swept = [key for key in asked.space if key.startswith(("training.rounds", "evaluation", "server.noise"))]
            why = "tune.scheduler: asha has compared its trials by them" if asked.tune.scheduler == "asha" else ""
            why = why or (f"its space has {swept[0]}" if swept else fixed_length(asked))
            if not why:
                return
            raise UserError(f"--resume: {self.path.name} cannot have more rounds: {why}; start a new run")
        how = f"by {self.again}" if plan.get("command") else "with the experiment it was begun with"
        changes = ", ".join(f"{key} {_shown(before, key)} -> {_shown(now, key)}" for key in keys)
        raise UserError(
            f"--resume: {self.path.name} was begun otherwise ({changes}): continue it {how}, or start a new run"
        )

    def longer(self, asked: Experiment) -> bool:
        """Whether the run was begun with fewer rounds."""
        plan = self._plan()
        return bool(plan) and validate(self._content()).training.rounds < asked.training.rounds

    def data(self, given: Path | None) -> Path | None:
        """Where corpora lie: the folder ``given`` with --data, else the one that the run was begun with. Raises
        UserError if it is not there."""
        if given is not None:
            if not given.is_dir():
                raise UserError(f"--data: there is no folder {given}")
            return given.resolve()
        begun = self._plan().get("data")
        if begun and not Path(begun).is_dir():
            raise UserError(
                f"{self.path.name} was begun with --data {begun}, and there is no such folder now: say with --data "
                "where it is"
            )
        return Path(begun) if begun else None

    def create(
        self, content: Content, experiment: Experiment, command: str | None = None, data: Path | None = None
    ) -> None:
        """Writes down what is about to run; from here on it can be resumed, and if ``command`` is given, with nothing
        but the run's name."""
        if experiment.plugins:
            content = content | {"plugins": [plugin.kept for plugin in experiment.plugins]}
        plan = {"content": content, "command": command, "data": str(data) if data else None}
        new, longer = not self.path.exists(), self.longer(experiment)
        with writing(self.path, "storage"):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock()
                for case, status in self.ended().items() if longer else ():  # first: while the plan has fewer rounds,
                    if status == "finished":  # a command that is killed here is repeated from here
                        (self.case(case) / OUTCOME).unlink()
                keep_plugins(experiment, self.path)
                _write(self.path / "experiment.yaml", resolved(experiment))
                _write(self.path / PLAN, json.dumps(plan, indent=2))
            except OSError:
                if new:
                    shutil.rmtree(self.path, ignore_errors=True)
                raise

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

    def check_space(self, needed: int) -> None:
        """Raise UserError if the disk has less free space than ``needed`` bytes."""
        free = shutil.disk_usage(self._nearest()).free
        if free < needed:
            raise UserError(
                f"storage: {self.path} has {free / 1e6:,.1f} MB free, and the checkpoints of this run take at least "
                f"{needed / 1e6:,.1f} MB: free space there, or choose another folder with storage=FOLDER"
            )

    def _nearest(self) -> Path:
        """The folder itself, or the nearest one above it that exists."""
        return next(path for path in (self.path, *self.path.parents) if path.exists())

    def _lock(self) -> None:
        if self.path in _LOCKED:
            return
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT)  # open, and so locked, until this process ends
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
        """The experiment as it was written, with the plug-ins that are kept here."""
        return with_plugins(self._plan()["content"], self.path)

    def case(self, case_id: str) -> Path:
        return self.path / case_id

    def ended(self) -> dict[str, Any]:
        """The cases that need not run again, and how they ended. Failed ones do run again."""
        found = {file.parent.name: json.loads(file.read_text())["status"] for file in self.path.glob(f"*/{OUTCOME}")}
        return {case: status for case, status in found.items() if status != "failed"}

    def record(self, case_id: str, outcome: Outcome) -> None:
        """Writes down that a case has ended."""
        self.case(case_id).mkdir(parents=True, exist_ok=True)
        _write(self.case(case_id) / OUTCOME, json.dumps({"status": outcome.status, "error": outcome.error}))


def flattened(part: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, by dotted keys."""
    if not isinstance(part, dict) or not part:
        return {prefix: part}
    inner = (flattened(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in part.items())
    return {key: value for each in inner for key, value in each.items()}


def _shown(values: dict[str, Any], key: str) -> str:
    return json.dumps(values[key], ensure_ascii=False) if key in values else "nothing"


def _again(path: Path, command: str) -> str:
    """What continues the run in ``path``: a name is enough where runs lie if nobody says otherwise."""
    run = path.name if path.parent == (home() / STORAGE).resolve() else str(path)
    return f"python -m platform.{command} --resume {shlex.quote(run)}"


def _write(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.draft")
    draft.write_text(text)
    os.replace(draft, file)
