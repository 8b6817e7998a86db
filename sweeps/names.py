"""Names of runs: where a run lies, at a path or at a URI, and the command that continues it."""

import re
import shlex
import time
from pathlib import Path

from fedtext.errors import UserError, option, spelled
from fedtext.runtime.lock import locked
from fedtext.runtime.paths import is_uri, local_path
from fedtext.runtime.remote import Remote
from fedtext.state.copy import Copy
from sweeps.places import PLAN, STORAGE, candidates, home

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}"  # as of the experiment


def places(storage: str) -> tuple[Path, Remote | None]:
    """Return the local folder of runs for the key ``storage``, and where their copies are; None: there are none.

    Raises:
        UserError: It is empty, or a URI that cannot be used.
    """
    if not is_uri(storage):
        return home() / local_path(storage, "storage"), None
    remote = Remote(storage, "storage")
    return (remote.local, None) if remote.local else (home() / STORAGE, remote)


def new(storage: Path, name: str | None, experiment: str) -> Path:
    """Return the folder of a new run.

    Args:
        storage: The folder of all runs.
        name: Name of the run; None: made of the experiment's name and the time.
        experiment: Name of the experiment.

    Raises:
        UserError: The name cannot be a folder's.
    """
    if name is not None and not re.fullmatch(NAME, name):
        raise UserError(
            f"{option('name')}: {name!r} cannot be a folder's name; use up to 150 letters, digits, '.', '_' and '-'"
        )
    return (storage / (name or f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}")).resolve()


def find(storage: Path, run: str, what: str) -> Path:
    """Return the folder of a run that exists. That of a run at a URI is brought up to date.

    Args:
        storage: The folder of all runs.
        run: Name, path or URI of the run.
        what: Beginning of the message if there is none.

    Raises:
        UserError: There is none, its name is too long for a path, or its copy cannot be read.
    """
    remote = Remote(run, what) if is_uri(run) else None
    if remote and remote.local is None:
        if not (remote / PLAN).info():
            raise UserError(f"{what}: there is no run at {remote}")
        return _pulled(remote)
    run = str(remote.local) if remote else str(local_path(run, what)) if run else ""
    path = next((path for path in candidates(storage, run) if (path / PLAN).is_file()), storage / run)
    if not (path / PLAN).is_file():
        if run and (Path(run) / "experiment.yaml").is_file() and any(Path(run).glob("round-*")):
            raise UserError(
                f"{what}: {run} was made by {spelled('run')} --no-ray, which has no report: metrics are in its "
                "rows.json, guarantees in its ledger.json, and the command that made it continues it"
            )
        there = sorted((plan.parent for plan in storage.glob(f"*/{PLAN}")), key=lambda p: p.stat().st_mtime)
        known = f"; the latest there are {', '.join(p.name for p in there[-3:])}" if there else ""
        raise UserError(f"{what}: there is no run {run} in {storage}{known}")
    return path.resolve()


def _pulled(remote: Remote) -> Path:
    """Return the local folder of a run at a URI, brought up to date unless a command works on it here: what it has is
    newer."""
    copy = Copy((home() / STORAGE / remote.name).resolve(), remote)
    with locked(copy.folder) as ours:
        if ours:
            copy.pull()
            return copy.folder
    copy.check_folder()
    if not copy.is_taken():
        raise being_worked_on(copy.folder)
    return copy.folder


def being_worked_on(folder: Path) -> UserError:
    """Return the error of a command that needs a run on which another one works."""
    return UserError(f"the run {folder.name} is being worked on by another command: wait for it")


def again_at(remote: Remote, command: str) -> str:
    """Return the command that continues the run with a copy at a URI, on whatever machine."""
    return f"{spelled(command)} --resume {shlex.quote(remote.uri)}"


def again(path: Path, command: str) -> str:
    """Return the command that continues the run in ``path``. Its name is enough if it is in the default storage."""
    run = path.name if path.parent == (home() / STORAGE).resolve() else str(path)
    return f"{spelled(command)} --resume {shlex.quote(run)}"
