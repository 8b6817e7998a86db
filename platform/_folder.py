"""The folder of a run: what was asked for, how each case ended, and where its state lies."""

import fcntl
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.cluster import job_ships_code
from dashboards.trial import Outcome
from fedtext.config import resolved, validate
from fedtext.errors import UserError
from fedtext.experiment import Experiment
from fedtext.federation import SCIENCE

PLAN, OUTCOME = "plan.json", "outcome.json"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # as an experiment's own


def home() -> Path:
    """Where results go: the working folder; or $FEDTEXT_HOME, or ~/fedtext inside a job whose working folder is a copy
    that Ray deletes."""
    if named := os.environ.get("FEDTEXT_HOME"):
        return Path(named).expanduser().resolve()
    return Path.home() / "fedtext" if job_ships_code() else Path.cwd()


@dataclass(frozen=True)
class RunFolder:
    """``<storage>/<run>``: plan.json, and a folder for each case with its checkpoint and, once ended, its outcome."""

    path: Path

    @staticmethod
    def choose(storage: Path, name: str | None, resume: str | None, experiment: Experiment) -> "RunFolder":
        """The folder to run in. Raises UserError if a new one would overwrite a run, if there is none to resume, or if
        the experiment to resume is another than the one that was begun."""
        if resume is not None and name is not None:
            raise UserError("--resume continues a run under the name it has: leave out --name")
        if resume is not None:
            path = Path(resume) if resume and (Path(resume) / PLAN).is_file() else storage / resume
            if not (path / PLAN).is_file():
                there = sorted((plan.parent for plan in storage.glob(f"*/{PLAN}")), key=lambda p: p.stat().st_mtime)
                known = f"; the latest there are {', '.join(p.name for p in there[-3:])}" if there else ""
                raise UserError(f"--resume: there is no run {resume} in {storage}{known}")
            begun = validate(json.loads((path / PLAN).read_text())["content"], str(path / PLAN))
            _same(begun, experiment, path)
            return RunFolder(path.resolve())
        if name is not None and not re.fullmatch(NAME, name):
            raise UserError(f"--name: {name!r} cannot be a folder's name; use letters, digits, '.', '_' and '-'")
        path = storage / (name or f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        if (path / PLAN).exists():
            raise UserError(
                f"the run {path.name} exists: continue it with --resume {path.name}, or choose another --name"
            )
        return RunFolder(path.resolve())

    def create(self, content: dict[str, Any], experiment: Experiment) -> None:
        """Writes down what is about to run; from here on it can be resumed."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT)  # open, and so locked, until this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"the run {self.path.name} is being worked on by another command: wait for it") from error
        _write(self.path / "experiment.yaml", resolved(experiment))
        _write(self.path / PLAN, json.dumps({"content": content}, indent=2))

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


def _same(begun: Experiment, asked: Experiment, path: Path) -> None:
    """Refuses to continue a run as another experiment; where it runs and is tracked may change."""
    for key in sorted(SCIENCE | {"name", "space", "baselines", "tune", "seeds"}):
        before, now = getattr(begun, key), getattr(asked, key)
        if before != now:
            raise UserError(
                f"--resume: {path.name} was begun with another {key} ({before!r}, now {now!r}): resume it with the "
                "experiment it was begun with, or start a new run"
            )


def _write(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.draft")
    draft.write_text(text)
    os.replace(draft, file)
