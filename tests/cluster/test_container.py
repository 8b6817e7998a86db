"""The steps of the Dockerfile in a folder of their own, in place of an engine, and the image's entry point."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.loops import nonempty

DOCKERFILE = (ROOT / "cluster" / "Dockerfile").read_text()
ENTRY = ROOT / "cluster" / "entrypoint.sh"


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, without comments, with continued lines joined."""
    lines = "\n".join(line for line in DOCKERFILE.splitlines() if line and not line.startswith("#"))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines.replace("\\\n", " ").splitlines()]


def value(instruction: str) -> str:
    (found,) = [rest for name, rest in steps() if name == instruction]
    return found


def commands() -> list[str]:
    """The commands that make the image: the package is installed, and the rest is compiled."""
    found = [rest for name, rest in steps() if name == "RUN"]
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's working folder, with what its COPY instructions bring there, and nothing else."""
    folder = tmp_path_factory.mktemp("image") / value("WORKDIR").lstrip("/")
    folder.mkdir(parents=True)
    for name, rest in nonempty(steps()):
        if name == "COPY":
            owner, *sources, target = rest.split()
            assert owner == "--chown=ray:users"
            for source in nonempty(sources):
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy2(ROOT / source, folder / target)
    return folder


def run(image: Path, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command by the entry point, outside of the repository, with the variables of the image."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON", "FEDTEXT"))}
    set_ = dict(word.split("=", 1) for word in shlex.split(value("ENV")))
    home = image.parent
    variables = kept | set_ | {"FEDTEXT_HOME": str(home), "HOME": str(home)} | environment
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    entry = image / Path(value("ENTRYPOINT").strip('[]"')).relative_to(value("WORKDIR"))
    return subprocess.run(
        ["bash", str(entry), *argv], cwd=home, env=variables, capture_output=True, text=True, timeout=300
    )


def test_nothing_runs_as_root() -> None:
    names = [name for name, _ in steps()]
    assert value("USER") == "ray"
    assert names.index("USER") < names.index("RUN")
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_the_base_is_pinned_and_can_be_named_by_its_digest() -> None:
    assert re.fullmatch(r"BASE=rayproject/ray:\d+\.\d+\.\d+-py311-gpu", value("ARG"))
    assert value("FROM") == "${BASE}"
    assert "-c constraints.txt" in commands()[0]


def test_dependencies_are_installed_before_the_rest_is_copied(image: Path) -> None:
    """An edit in a room that pip does not read keeps the layer with the dependencies."""
    names = [name for name, _ in steps()]
    copied = [rest.split()[1] for name, rest in steps()[: names.index("RUN")] if name == "COPY"]
    assert copied == ["pyproject.toml", "fedtext"]
    assert (image / "constraints.txt").is_file()


def test_everything_is_compiled_in_the_image(image: Path, tmp_path: Path) -> None:
    """A container that is removed after its command would compile it anew each time."""
    folder = shutil.copytree(image, tmp_path / "image")
    argv = [sys.executable, *shlex.split(commands()[1])[1:]]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    for source in nonempty(folder.rglob("*.py")):
        assert list(source.parent.glob(f"__pycache__/{source.stem}.*.pyc")), source


@pytest.mark.slow
def test_the_package_is_installed_from_what_was_copied(image: Path, tmp_path: Path) -> None:
    """The image's own command but for dependencies, which are those of this environment."""
    command = shlex.split(commands()[0].partition("&&")[0])
    argv = [sys.executable, "-m", *command, "--no-deps", "--target", str(tmp_path / "site"), "--quiet"]
    done = subprocess.run(argv, cwd=image, capture_output=True, text=True, timeout=500)
    if "Could not find a version that satisfies the requirement setuptools" in done.stderr:
        pytest.skip("building a package needs setuptools from a registry, and none is reached")
    assert done.returncode == 0, done.stderr
    installed = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site" / "fedtext").rglob("*.py")}
    assert installed == {path.relative_to(image) for path in (image / "fedtext").rglob("*.py")}
    assert list((tmp_path / "site").rglob("native.c")), "compiled when it is first used"


@pytest.mark.slow
def test_a_command_of_platform_runs_from_the_copied_rooms_alone(image: Path) -> None:
    done = run(image, "sweep", "demo.yaml", "--dry-run", "--num-cpus", "4", "--num-gpus", "1")
    assert done.returncode == 0, done.stderr
    assert "05-kteps" in done.stdout
    told = "import sweeps, dashboards, actors, tune_spaces, cluster; print(sweeps.__file__, cluster.__file__)"
    where = run(image, "sh", "-c", f"cd {shlex.quote(str(image))} && python -c {shlex.quote(told)}")
    assert where.stdout.split() == [str(image / "sweeps" / "__init__.py"), str(image / "cluster" / "__init__.py")]


def test_anything_else_runs_as_it_is(image: Path) -> None:
    done = run(image, "sh", "-c", "pwd; echo $FEDTEXT_HOME; exit 3")
    assert (done.returncode, done.stdout.split()) == (3, [str(image.parent)] * 2)
    assert run(image, "no-such-command").returncode == 127


def test_a_token_is_drawn_unless_one_is_given(image: Path) -> None:
    show = ("sh", "-c", "echo $RAY_AUTH_MODE $RAY_AUTH_TOKEN")
    first, second = run(image, *show).stdout.split(), run(image, *show).stdout.split()
    assert first[0] == "token"
    assert re.fullmatch(r"[0-9a-f]{64}", first[1])
    assert first[1] != second[1]
    assert run(image, *show, RAY_AUTH_TOKEN="given").stdout.split() == ["token", "given"]
    assert run(image, *show, RAY_AUTH_TOKEN_PATH="/run/secrets/token").stdout.split() == ["token"]
    assert run(image, *show, RAY_AUTH_MODE="disabled").stdout.split() == ["disabled"]


def test_the_entry_point_is_executable() -> None:
    assert os.access(ENTRY, os.X_OK)
