"""The content of the JSON files in a run's folder."""

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from fedtext.config.package import Package
from fedtext.errors import UserError
from fedtext.runtime.json_files import read_json

T = TypeVar("T")
COPY = "bring it back from a copy of the run, or begin the run again"


@with_config(ConfigDict(extra="allow"))
class About(TypedDict, total=False):
    """A planned trial, for lists of runs."""

    method: str
    baseline: bool
    rounds: int
    data: str  # of platform.reproduce: a digest of its data
    commits: list[str]  # ... of the code that has trained it


@with_config(ConfigDict(extra="allow"))
class Plan(TypedDict, total=False):
    """``plan.json``: how a run was begun. Earlier versions wrote less."""

    content: dict[str, Any]
    command: Literal["run", "sweep"] | None
    data: str | None
    versions: list[dict[str, Any]]
    trials: dict[str, About] | None
    key: str | None  # identifies the key with which the run's state is encrypted
    packages: list[Package]  # of plug-ins that are installed modules


class _Outcome(TypedDict):
    status: Literal["finished", "stopped", "failed"]


class Outcome(_Outcome, total=False):
    """``outcome.json``: how a case ended."""

    error: str


class Exploited(TypedDict):
    """A member of a population that goes on from another one."""

    member: int
    donor: int
    point: dict[str, Any]


class Generation(TypedDict):
    """An entry of ``population.json``."""

    done: bool
    exploits: list[Exploited]


class Told(TypedDict):
    """The result of a point, as a search has been told it."""

    values: list[float] | None
    rounds: list[tuple[int, float]]


class Points(TypedDict):
    """The points in ``search.json``."""

    points: list[dict[str, Any]]


class _Log(Points):
    optuna: str
    told: list[Told]


class Log(_Log, total=False):
    """``search.json``: the points of a search, and their results. Earlier versions did not write the rounds."""

    rounds: int  # of the trials whose results it has been told


def stored(file: Path, kind: type[T]) -> T:
    """Read a JSON file of a run. Raises UserError if it is damaged."""
    return read_json(file, kind, COPY)


def glimpsed(file: Path, kind: type[T]) -> T | None:
    """Read a JSON file of a run, for lists; None if it is missing or damaged."""
    try:
        return stored(file, kind)
    except UserError:
        return None
