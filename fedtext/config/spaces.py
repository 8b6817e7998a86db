"""Experiment files: where they are looked up, and how they are parsed.

Nothing here imports torch: commands that only look at files do not wait for it.
"""

import os
import site
import sysconfig
from pathlib import Path
from typing import Any

from fedtext.config.yaml_text import YAMLTextError, parse
from fedtext.errors import UserError


def _spaces() -> Path:
    """Return the folder of the experiments that come with fedtext: in the repository, or where pip puts data files."""
    above = Path(__file__).resolve().parents[2]  # with pip install --target that folder, else the repository
    installed = [Path(base, "share/fedtext") for base in (above, sysconfig.get_path("data"), site.getuserbase())]
    return next(
        (path for folder in (above, *installed) if (path := folder / "tune_spaces").is_dir()), above / "tune_spaces"
    )


SPACES = _spaces()


def find(name: str | Path) -> Path:
    """Return the experiment file ``name``: as a path, else in ``tune_spaces/``.

    Raises:
        UserError: There is none. The message lists the existing files.
    """
    for path in (Path(name), SPACES / name, SPACES / f"{name}.yaml"):
        if os.path.isfile(path):  # False for what can be no path, where Path raises OSError
            return path
    if os.path.isdir(name):
        raise UserError(f"{name} is a folder: name an experiment file in it")
    known = ", ".join(sorted(path.name for path in SPACES.glob("*.yaml"))) or "none, since these are not installed"
    raise UserError(
        f"there is no experiment file {name}, neither here nor in tune_spaces/: give a path, or one of {known}"
    )


def read(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file. Raises UserError, naming the line, if it is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give the path of an experiment file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8: give the path of an experiment file") from error
    try:
        content = parse(text)
    except YAMLTextError as error:
        raise UserError(f"{path}{f', line {error.line}' if error.line else ''}: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: an experiment file has keys and values, such as `name: my-experiment`")
    return content
