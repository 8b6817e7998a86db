"""Where a run came from: tags with the versions, the state of the code, who started what, and on which experiment."""

import getpass
import importlib.metadata
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT, MLFLOW_SOURCE_NAME, MLFLOW_SOURCE_TYPE, MLFLOW_USER


def versions() -> dict[str, str]:
    """``version.*`` tags of what computes and what records."""
    found = {"version.python": ".".join(str(part) for part in sys.version_info[:3])}
    for package in ("torch", "ray", "mlflow"):
        try:
            found[f"version.{package}"] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, str]:
    """``git.commit`` and ``git.dirty`` of the code that runs; nothing where it is no git checkout."""

    def git(*arguments: str) -> str:
        folder = Path(__file__).parent
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", ":/")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {MLFLOW_GIT_COMMIT: commit, "git.commit": commit, "git.dirty": str(bool(changes)).lower()}


def experiment_tags(dump: Mapping[str, Any]) -> dict[str, str]:
    """What runs are filtered and grouped by, and what fills MLflow's own columns for the user and the command."""
    command = Path(sys.argv[0] or "python")
    return {
        "method": dump["method"]["name"],
        "corpus": dump["corpus"]["name"],
        **({"seed": str(dump["seed"])} if "seed" in dump else {}),  # a case with several has none of its own
        MLFLOW_USER: _user(),
        MLFLOW_SOURCE_TYPE: "LOCAL",
        MLFLOW_SOURCE_NAME: f"{command.parent.name}/{command.name}".lstrip("/"),
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
