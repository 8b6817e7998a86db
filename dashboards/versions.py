"""Versions of the software, and the state of its code. MLflow is not imported."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path


def versions() -> dict[str, str]:
    """Return ``version.*``: Python, torch, Ray and MLflow."""
    found = {"version.python": ".".join(str(part) for part in sys.version_info[:3])}
    for package in ("torch", "ray", "mlflow"):
        try:
            found[f"version.{package}"] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, str]:
    """Return ``git.commit`` and ``git.dirty`` of the running code; nothing if it is no git checkout."""

    def git(*arguments: str) -> str:
        folder = Path(__file__).parent
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", ":/")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"git.commit": commit, "git.dirty": str(bool(changes)).lower()}
