"""A request for tables of a paper: what it says, and how it is written in files and commands."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.request import Cluster
from tune_spaces import papers
from tune_spaces.papers import Scale


@dataclass(frozen=True)
class Asked:
    """A request for tables of a paper.

    Attributes:
        paper: The name of the paper.
        tables: Numbers of its tables; ``fig3`` for figure 3.
        scene: The paper's data set; None: the first of the tables.
        seeds: Number of repetitions.
        scale: Share of the paper's rounds and of the train texts.
        methods: Only these systems, in the paper's names; empty: all.
        rows: Only these rows, ``*`` stands for anything; empty: all.
        changes: ``key=value`` for every experiment.
        out: The folder of the results; None: ``docs/reproductions/tables``.
        data: The folder of corpora.
        cluster: The Ray cluster to use.
        finished: Run nothing, and write the rows of trials that have finished.
        again: Write rows and seeds too that are kept: from their trials, and those that are gone are trained.
    """

    paper: str
    tables: Sequence[str]
    scene: str | None = None
    seeds: int = 1
    scale: float = 1.0
    methods: Sequence[str] = ()
    rows: Sequence[str] = ()
    changes: Sequence[str] = ()
    out: Path | None = None
    data: str | Path | None = None
    cluster: Cluster = field(default_factory=Cluster)
    finished: bool = False
    again: bool = False


def extent(scale: Scale, changes: Mapping[str, object]) -> str:
    """Return a sentence on the scale of a reproduction, and on its changes."""
    if not changes:
        return scale.sentence
    said = "" if scale.share == 1 else f"{scale.sentence} "
    return f"{said}CHANGED: {', '.join(f'{name}={json.dumps(value)}' for name, value in changes.items())}."


def mark(scale: Scale, asked: Asked) -> str:
    """Return the suffix of files of another scale or of a changed run; empty for the paper's own settings."""
    share = "" if scale.share == 1 else f"-scale{scale.share:g}"
    parsed = papers.changes(asked.changes)  # however they are typed
    changes = sorted(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in parsed.items())
    return share + (f"-{hashlib.sha256(json.dumps(changes).encode()).hexdigest()[:6]}" if changes else "")


def command(asked: Asked, scene: str) -> str:
    """Return the command that runs a table; its data are in FOLDER."""
    said = ["python -m platform.reproduce", asked.paper, *asked.tables, "--data FOLDER", "--scene", shlex.quote(scene)]
    said += ["--seeds", str(asked.seeds)] if asked.seeds > 1 else []
    said += ["--scale", f"{asked.scale:g}"] if asked.scale != 1 else []
    for option, words in (("methods", asked.methods), ("rows", asked.rows), ("set", asked.changes)):
        said += [f"--{option}", *map(shlex.quote, words)] if words else []
    return " ".join(said)
