"""Finds an experiment file and turns it, with the command line's changes, into an experiment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError

SPACES = Path(__file__).parent


def find(name: str) -> Path:
    """The file ``name``: as a path, else in this folder. Raises UserError listing what is there."""
    for path in (Path(name), SPACES / name, SPACES / f"{name}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.name for path in SPACES.glob("*.yaml")))
    raise UserError(
        f"there is no experiment file {name}, neither here nor in tune_spaces/: give a path, or one of {known}"
    )


def load(
    name: str, overrides: Sequence[str] = (), changes: dict[str, Any] | None = None
) -> tuple[files.Content, Experiment]:
    """The file's content with ``key=value`` words and then ``changes`` applied, and the experiment it describes."""
    path = find(name)
    written = files.read(path)
    pairs = dict(files.parse_override(word) for word in overrides)
    content = files.override(written, pairs | (changes or {}))
    return content, files.validate(content, path.name, path, [*pairs, *(changes or {})])
