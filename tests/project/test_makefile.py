"""``make`` finds the Python that it makes its environment with."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


def python(folder: Path, name: str, script: str = f'exec "{sys.executable}" "$@"') -> None:
    """An executable ``name``: this Python, unless ``script`` says otherwise."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def older(version: str) -> str:
    """A script that is Python of this version: the real one with another number in ``sys.version_info``."""
    number = version.replace(".", ", ")
    start = f"import sys; sys.version_info = ({number}); sys.argv = sys.argv[2:]; exec(sys.argv[0])"
    return f'exec "{sys.executable}" -c "{start}" "$@"'


def made(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``make`` of an environment in ``folder``/venv, where nothing but ``folder`` is on the PATH."""
    assert MAKE is not None
    venv = folder / "venv"
    env = {
        name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }
    argv = [MAKE, f"VENV={venv}", *words, f"{venv}/bin/python"]
    return subprocess.run(argv, cwd=ROOT, env=env | {"PATH": str(folder)}, capture_output=True, text=True)


def test_it_takes_the_first_that_is_new_enough_and_says_which(tmp_path: Path) -> None:
    python(tmp_path, "python3.11", "exit 127")  # as a version manager leaves the names of what is not there
    python(tmp_path, "python3.12", older("3.10.4"))
    python(tmp_path, "python3.13")
    python(tmp_path, "python3", "exit 1")
    done = made(tmp_path)
    assert done.returncode == 0, done.stderr
    version = ".".join(map(str, sys.version_info[:3]))
    assert done.stdout.startswith(f"{tmp_path}/venv is made with {tmp_path}/python3.13, Python {version}")
    assert (tmp_path / "venv" / "bin" / "pip").is_file()
    assert "is up to date" in made(tmp_path).stdout

    python(tmp_path, "other", older("3.99.1"))  # newer, and yet not the one that the environment has
    assert made(tmp_path, "PYTHON=python3.13").returncode == 0
    done = made(tmp_path, "PYTHON=other")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path}/venv is Python {version}: make clean first to use other\n")


def test_the_tested_version_comes_first_and_python_names_another(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    for name in ("python3.11", "python3.14", "python3", "mine"):
        python(tmp_path, name, f'echo {name} >> "{tried}"; exit 1')
    assert made(tmp_path).returncode == 2
    assert tried.read_text().split() == ["python3.11", "python3.14", "python3"]
    tried.unlink()
    done = made(tmp_path, "PYTHON=mine")
    assert done.returncode == 2
    assert "and none of mine is that" in done.stderr
    assert tried.read_text().split() == ["mine"]


def test_without_any_it_is_one_sentence_and_status_2(tmp_path: Path) -> None:
    python(tmp_path, "python3", older("3.10.4"))
    done = made(tmp_path)
    assert done.returncode == 2
    sentence, maker = done.stderr.splitlines()
    assert sentence == (
        "fedtext needs Python 3.11 or newer with venv (on Debian and Ubuntu: python3-venv), and none of python3.11 "
        "python3.12 python3.13 python3.14 python3 python is that: install it, or name one with make PYTHON=..."
    )
    assert "Error 2" in maker
    assert not (tmp_path / "venv").exists()
