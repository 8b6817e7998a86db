"""The tables of the papers: the value in each cell, and the experiment that reproduces it. One YAML file per paper."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.config.overrides import override, parse_overrides
from fedtext.errors import UserError
from fedtext.methods import LGFedAvg
from fedtext.schema import Strict
from fedtext.state.fingerprint import SCIENCE, named
from tune_spaces.cases import Case

PAPERS = Path(__file__).parent


class Row(Strict):
    """A row of a table.

    Args:
        system: The name of a system of the paper.
        set: Changes to it, by dotted key.
        paper: The paper's values by scene and column: perplexities as they are, everything else in percent. A scene
            without values is run all the same.
    """

    system: str
    set: dict[str, Any] = Field(default_factory=dict)
    paper: dict[str, dict[str, float]]


class Table(Strict):
    """A table of a paper, or a plot.

    Args:
        title: The heading.
        departures: Sentences on differences from the paper.
        read: The metric of each column, with the round after which it is taken if not the last: ``AUC@25``.
        set: Changes to all its systems, by dotted key.
        rows: The rows by name.
        clients: The paper's values of single clients, by scene, client and row.
        shows: The name of a file of the runs, whose text is shown below the table.
        alternatives: A column of a validation metric: of rows of one system, such as those of different learning rates,
            the one with the best value there under the first seed is compared with other systems. Empty: all are.
    """

    title: str
    departures: tuple[str, ...] = ()
    read: dict[str, str]
    set: dict[str, Any] = Field(default_factory=dict)
    rows: dict[str, Row]
    clients: dict[str, dict[str, dict[str, float]]] = Field(default_factory=dict)
    shows: str = ""
    alternatives: str = ""


class Paper(Strict):
    """A paper.

    Args:
        title: Its name.
        noise: The spread of a single run of the paper's, by scene: in points for values in percent, in percent for
            perplexities.
        scenes: Its data sets, each as a complete experiment.
        departures: Sentences on differences from the paper, by scene.
        systems: Its methods, as changes to a scene.
        tables: Its tables, named as in the paper: ``2``, ``II``, and ``fig2`` for figure 2.
        compare: Pairs of systems whose rows are compared seed by seed if they differ in nothing else.
    """

    title: str
    noise: dict[str, float]
    scenes: dict[str, dict[str, Any]]
    departures: dict[str, tuple[str, ...]]
    systems: dict[str, dict[str, Any]]
    tables: dict[str, Table]
    compare: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Scale:
    """The scale of a reproduction: a share of the paper's rounds and of each client's train texts."""

    share: float = 1.0

    @property
    def sentence(self) -> str:
        if self.share == 1:
            return "The paper's rounds, and all train texts of the data set."
        return f"SCALED DOWN: {self.share:g} of the rounds, and {self.share:g} of each client's train texts."

    def applied(self, content: files.Content) -> files.Content:
        """Return the content of an experiment on this scale. Raises UserError if it is not a valid experiment."""
        if self.share == 1:
            return content
        whole = files.validate(content, "the experiment to be scaled")
        changes = {
            "training.rounds": max(1, round(self.share * whole.training.rounds)),
            "corpus.share": self.share * whole.corpus.share,
        }
        if isinstance(whole.method, LGFedAvg) and whole.method.pretrain:
            changes["method.pretrain"] = max(1, round(self.share * whole.method.pretrain))
        return override(content, changes)


def metric_of(word: str, scale: Scale) -> tuple[str, int | None]:
    """Return the metric of a column, and the round after which it is taken, on this scale; None: the last."""
    metric, _, round_ = word.partition("@")
    return metric, max(1, round(scale.share * int(round_))) if round_ else None


def called(number: str) -> str:
    """Return ``table II`` or ``figure 2``."""
    return f"figure {number.removeprefix('fig')}" if number.startswith("fig") else f"table {number}"


def stem(name: str, scene: str) -> str:
    """Return the first part of the names of runs and files of a scene: ``fedevocab-AG-News``."""
    return f"{name}-{scene.replace(' ', '-')}"


def compared(paper: Paper, table: Table) -> list[tuple[str, str]]:
    """Return the pairs of rows to be compared: those of the systems in ``compare`` that differ in nothing else."""
    return [
        (one, other)
        for first, second in paper.compare
        for one, row in table.rows.items()
        for other, beside in table.rows.items()
        if (row.system, beside.system) == (first, second) and row.set == beside.set
    ]


@cache
def load(name: str) -> Paper:
    """Load the paper called ``name``. Raises UserError with the known names if there is none."""
    path = PAPERS / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in PAPERS.glob("*.yaml")))
        raise UserError(f"there is no paper {name}: choose {known}")
    return Paper.model_validate(files.read(path))


def first_scene(paper: Paper, numbers: Sequence[str]) -> str:
    """Return the first scene that all these tables have; if there is none, the paper's first."""
    about = [{scene for row in table.rows.values() for scene in row.paper}
             for number, table in paper.tables.items() if number in numbers]  # fmt: skip
    return next((scene for scene in paper.scenes if all(scene in scenes for scenes in about)), next(iter(paper.scenes)))


def tables(
    paper: Paper, numbers: Sequence[str], scene: str, systems: Sequence[str] = (), rows: Sequence[str] = ()
) -> dict[str, Table]:
    """Return tables with the selected rows only.

    Args:
        paper: The paper.
        numbers: The names of the tables.
        scene: Rows without this scene are left out.
        systems: Rows of other systems are left out; empty: of none.
        rows: Rows of other names are left out; ``*`` stands for anything; empty: none.

    Raises:
        UserError: A table, scene, system or row is not there.
    """
    found = {number: _about(paper, number, scene) for number in numbers}
    known = dict.fromkeys(row.system for table in found.values() for row in table.rows.values())
    for system in systems:
        if system not in known:
            named = " and ".join(map(called, found))
            raise UserError(f"--methods: {named} has no {system}: choose among {', '.join(known)}")
    kept = {
        number: {
            name: row
            for name, row in table.rows.items()
            if (not systems or row.system in systems) and (not rows or any(fnmatchcase(name, word) for word in rows))
        }
        for number, table in found.items()
    }
    if empty := [number for number, chosen in kept.items() if not chosen]:
        option, words = ("--rows", rows) if rows else ("--methods", systems)
        whole = found[empty[0]].rows
        there = whole if rows else dict.fromkeys(row.system for row in whole.values())
        raise UserError(
            f"{option}: {called(empty[0])} has none of {', '.join(words)}: leave it out, or choose among "
            f"{', '.join(there)}"
        )
    return {number: found[number].model_copy(update={"rows": chosen}) for number, chosen in kept.items()}


def _about(paper: Paper, number: str, scene: str) -> Table:
    """Return table ``number`` with its rows of ``scene``."""
    if number not in paper.tables:
        raise UserError(f"there is no {called(number)} of results: choose {', '.join(paper.tables)}")
    if scene not in paper.scenes:
        raise UserError(f"--scene: there is no scene {scene}: choose {', '.join(paper.scenes)}")
    found = paper.tables[number]
    rows = {name: row for name, row in found.rows.items() if scene in row.paper}
    if not rows:
        raise UserError(f"{called(number)} has nothing about {scene}: leave it out, or choose another --scene")
    return found.model_copy(update={"rows": rows})


NOT_TO_SET = {"name", "seed", "seeds", "space", "baselines", "tune"}  # set by the command itself


def changes(words: Sequence[str]) -> dict[str, Any]:
    """Parse ``key=value`` words for every experiment. Raises UserError for keys that the command sets itself."""
    found = parse_overrides(words)
    for key in found:
        if key.partition(".")[0] in NOT_TO_SET:
            raise UserError(f"--set: {key} is not to be set here: --seeds and the tables decide what is run")
    return found


def content(
    paper: Paper, table: Table, row: Row, scene: str, scale: Scale, overrides: Mapping[str, Any]
) -> files.Content:
    """Return the content of a row's experiment.

    Args:
        paper: The paper.
        table: The table.
        row: The row.
        scene: The paper's data set.
        scale: Share of the paper's rounds and of the train texts.
        overrides: Changes, by dotted key.

    Raises:
        UserError: A change is of a key that defines the row.
    """
    own = paper.systems[row.system] | table.set | row.set
    for key in overrides:
        if taken := next((name for name in own if _overlap(key, name)), None):
            raise UserError(f"--set: {key} is not to be set for {row.system}, whose {taken} is what the row is about")
    return scale.applied(override(paper.scenes[scene], own | dict(overrides)))


def _overlap(one: str, other: str) -> bool:
    """Whether one key is the other, or lies within it."""
    shorter, longer = sorted((f"{one}.", f"{other}."), key=len)
    return longer.startswith(shorter)


def cases(
    paper: Paper, table: Table, scene: str, scale: Scale, seeds: int, overrides: Mapping[str, Any]
) -> Iterator[tuple[str, list[Case]]]:
    """Yield each row's name with its cases, one for each seed.

    Rows of the same experiment have the same cases, also in different tables.

    Args:
        paper: The paper.
        table: The table.
        scene: The paper's data set.
        scale: Share of the paper's rounds and of the train texts.
        seeds: Number of seeds.
        overrides: Changes, by dotted key.
    """
    for name, row in table.rows.items():
        experiment = files.validate(content(paper, table, row, scene, scale, overrides), f"row {name}")
        group = f"{experiment.method.name}-{_digest(experiment)}"
        seeded = [experiment.model_copy(update={"seed": experiment.seed + n}) for n in range(seeds)]
        label = name if row.system in name else f"{row.system} {name}"
        yield name, [Case(f"{group}-seed{one.seed}", group, label, False, dict(row.set), one) for one in seeded]


def _digest(experiment: Experiment) -> str:
    """Return a digest of everything that is computed, except for the seed."""
    looked = {"audits"} if experiment.audits else set()
    parts = named(experiment, SCIENCE - {"seed"} | looked)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]
