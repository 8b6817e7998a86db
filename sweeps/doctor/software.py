"""Checks of installed software: Python, packages against constraints.txt, extras. Nothing is imported."""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dashboards.versions import git_state
from sweeps.doctor.finding import About, Finding

ROOT = Path(__file__).resolve().parents[2]
INSTALL = "pip install -c constraints.txt"
# The purpose of each extra of pyproject.toml.
EXTRAS = {
    "platform": "sweeps on Ray, tracked in MLflow, and reports",
    "word2vec": "word vectors trained on a corpus, as in kteps.yaml",
    "transformer": "pretrained transformers from a folder or the hub",
    "minilm": "the small transformer of transformer.yaml",
    "ledger": "epsilons of Gaussian noise",
    "search": "tune.search: tpe",
    "secret": "privacy.noise: secret",
    "encryption": "the state of runs encrypted at rest, with FEDTEXT_STATE_KEY",
    "hdf5": "corpus stackoverflow from an .h5 file",
    "oracle": "the library with which tests compare correlated noise",
    "dev": "the tests",
    "docs": "the documentation as a site, by make docs",
}
_about = About("software")


def installed() -> Iterator[Finding]:
    """Yield what is found of Python, the packages and the extras."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    yield python(project["requires-python"])
    yield from needed(project["dependencies"])
    yield pinned()
    for extra, packages in project["optional-dependencies"].items():
        yield extra_of(extra, packages)


def python(required: str) -> Finding:
    """Compare this Python with the one that is required, such as ``>=3.11``, and name the code."""
    found, least = ".".join(map(str, sys.version_info[:3])), required.removeprefix(">=")
    if numbers(found) < numbers(least):
        return _about.problem(f"Python {found}, and fedtext needs {least}", "install it, and make clean install")
    code = git_state()
    changed = ", changed" if code.get("git.dirty") == "true" else ""
    commit = f" (commit {code['git.commit'][:10]}{changed})" if code else ""
    return _about.ok(f"Python {found}, fedtext {version_of('fedtext') or 'not installed'}{commit}")


def needed(requirements: Iterable[str]) -> Iterator[Finding]:
    """Yield a problem for each package that the library needs and that is not there, or too old."""
    for name, least in map(parsed, requirements):
        found = version_of(name)
        if found is None:
            yield _about.problem(f"{name} is not installed", f"{INSTALL} {name}")
        elif numbers(found) < numbers(least):
            yield _about.problem(f"{name} {found} is older than {least}", f"{INSTALL} {name}")


def pinned() -> Finding:
    """Compare the installed packages with the versions that were tested, which constraints.txt has."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if re.match(r"[\w.-]+==", line))
    there = {name: found for name in tested if (found := version_of(name)) is not None}
    # A local version names a build: 2.13.0+cpu is 2.13.0.
    others = [
        f"{name} {found} (tested: {tested[name]})" for name, found in there.items() if not same(found, tested[name])
    ]
    main = ", ".join(f"{name} {there[name]}" for name in ("torch", "ray", "mlflow") if name in there)
    if others:
        return _about.warning(f"{main}; other versions than the tested ones: {', '.join(others)}", f"{INSTALL} -e .")
    return _about.ok(f"{main}; all {len(there)} packages in the versions of constraints.txt")


def extra_of(extra: str, requirements: Iterable[str]) -> Finding:
    """Say whether an extra is installed, and what it is for."""
    purpose = f"{extra} ({EXTRAS[extra]})" if extra in EXTRAS else extra
    packages = [parsed(line) for line in requirements if applies(line)]
    missing = [name for name, _ in packages if version_of(name) is None]
    old = [name for name, least in packages if name not in missing and numbers(version_of(name) or "") < numbers(least)]
    if missing or old:
        lacks = " and ".join(
            filter(None, (f"lacks {', '.join(missing)}" * bool(missing), f"old: {', '.join(old)}" * bool(old)))
        )
        words = f'{INSTALL} -e ".[{extra}]", if you need it'
        return _about.warning(f"extra {purpose}: {lacks}", words)
    return _about.ok(f"extra {purpose}")


def version_of(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, for a comparison: ``2.13.0+cpu`` -> (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0]))


def same(found: str, tested: str) -> bool:
    """Whether an installed version is the tested one. A local part, ``+cpu``, is that of a build and does not count."""
    return found.partition("+")[0] == tested.partition("+")[0]


def parsed(requirement: str) -> tuple[str, str]:
    """Return the package of a requirement and its least version: ``ray[tune]>=2.50`` -> ("ray", "2.50")."""
    name = re.match(r"[\w.-]+", requirement)
    least = re.search(r">=\s*([\w.]+)", requirement)
    return name[0] if name else requirement, least[1] if least else ""


def applies(requirement: str) -> bool:
    """Whether a requirement is for this system: those with a marker of a platform are for Linux here."""
    return "platform_system" not in requirement or sys.platform.startswith("linux")
