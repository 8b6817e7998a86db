"""What pip installs of the project: the library, what it compiles, and the experiments that come with it; and what its
source distribution has."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import ROOT
from tests.loops import nonempty

OWN = "share/fedtext/tune_spaces/"


def tracked() -> list[str]:
    """The files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in nonempty(listed.split("\0")[:-1]) if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files of the repository, without what only this machine has."""
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("setuptools is older than pyproject.toml asks for, and nothing is downloaded here")
    folder = tmp_path_factory.mktemp("source")
    for name in nonempty(tracked()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.slow
def test_a_source_distribution_has_every_file_of_the_repository(source: Path, tmp_path: Path) -> None:
    """`make sweep` and the other commands of the README need more than the library."""
    build = [sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (file,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert [name for name in nonempty(tracked()) if name not in held] == []


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the files of the repository, made without a network."""
    made = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(made), "."]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (file,) = made.glob("*.whl")
    return file


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_library_and_every_experiment(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(["git", "ls-files", "fedtext"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [name for name in nonempty(listed.splitlines()) if (ROOT / name).is_file() and name not in held] == []
    experiments = {path.name for path in (ROOT / "tune_spaces").glob("*.yaml")}
    assert {name.rpartition("/")[2] for name in held if OWN in name} == experiments
    assert {name.partition("/")[0].partition("-")[0] for name in held} == {"fedtext"}, "no name that others may use"


@pytest.mark.slow
@pytest.mark.parametrize("into", ["a folder", "an environment"])
def test_the_library_alone_knows_the_experiments(into: str, wheel: Path, tmp_path: Path) -> None:
    """From a folder that is not the repository's, with what else it needs from the environment of the tests."""
    home, there = tmp_path / "home", tmp_path / "there"
    home.mkdir()
    python, paths = sys.executable, [str(there)]
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)]
    if into == "a folder":
        subprocess.run([python, *install, "--target", str(there)], check=True, capture_output=True)
    else:
        subprocess.run([python, "-m", "venv", str(there)], check=True, capture_output=True)
        python, paths = str(there / "bin" / "python"), []
        subprocess.run([python, *install], check=True, capture_output=True)
    packages = Path(pytest.__file__).parents[
        1
    ]  # found through PYTHONPATH, an editable install there counts for nothing
    given = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, str(packages)]), "FEDTEXT_HOME": str(home)}

    def fedtext(*words: str) -> str:
        argv = [python, "-m", "fedtext", *words]
        done = subprocess.run(argv, cwd=home, env=given, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.run(
        [python, "-c", "import fedtext; print(fedtext.__file__)"], cwd=home, env=given, capture_output=True, text=True
    )
    assert Path(where.stdout.strip()).is_relative_to(there)
    assert "round 1/1" in fedtext("run", "demo.yaml", "--no-ray", "training.rounds=1")
    fedtext("cp", "kteps.yaml", "my.yaml")
    assert (home / "my.yaml").read_text() == (ROOT / "tune_spaces" / "kteps.yaml").read_text()
