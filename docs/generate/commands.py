"""The page of all commands, with what ``--help`` says of each."""

import os
import re
import subprocess
import sys
from importlib import import_module

from docs.generate.markdown import ROOT, joined, table
from fedtext.commands import COMMANDS, Command
from fedtext.errors import called_by

WIDTH = "100"  # columns
FURTHER = ("cluster", "dashboards.ui")  # modules, beside the commands of fedtext


def page() -> str:
    """Return the page of all commands."""
    parts = [
        "# Commands",
        "Every command with its `--help`. `fedtext` is `.venv/bin/fedtext` after `make install`; in the repository "
        "`fedtext run` is also `python -m platform.run`, and so on. Exit statuses are in [errors](errors.md).",
        "This page is written by `python -m docs`.",
        table(
            ("command", "what it does"),
            [(f"[`fedtext {c.name}`](#fedtext-{c.name})", c.summary) for c in COMMANDS.values()],
        ),
    ]
    os.environ["COLUMNS"] = WIDTH
    called_by("fedtext ")
    for command in COMMANDS.values():
        parts += [f"## fedtext {command.name}", f"```text\n{_help(command)}\n```"]
    for module in FURTHER:
        parts += [f"## python -m {module}", f"```text\n{_run(module)}\n```"]
    return joined([*parts, "## make", table(("target", "what it does"), _targets())])


def _help(command: Command) -> str:
    text: str = import_module(command.library or f"platform.{command.name}").parser().format_help()
    return text.strip()


def _run(module: str) -> str:
    command = [sys.executable, "-m", module, "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _targets() -> list[list[str]]:
    found = re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(), re.M)
    return [[f"`make {name}`", text] for name, text in found]
