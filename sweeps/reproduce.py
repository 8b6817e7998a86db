"""Reproductions of papers' tables: their trials, and the tables made of their metrics."""

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.figures import Origin, Reproduction
from dashboards.reproduction import markdown, picture
from dashboards.reproduction_csv import read_csv, table_csv
from dashboards.trial import Outcome
from fedtext.config import files
from fedtext.config.overrides import override
from fedtext.errors import UserError
from sweeps.coverage import update
from sweeps.folder import RunFolder, home
from sweeps.prepare import planned, reached
from sweeps.request import Cluster
from sweeps.results import Rows, check_columns, named, reproduced, when
from sweeps.summary import summary
from tune_spaces import papers
from tune_spaces.papers import Paper, Scale, Table
from tune_spaces.papers.notes import personalization_notes, training_notes

if TYPE_CHECKING:
    from dashboards.tracking import Tracker


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
        out: The folder of the results; None: ``docs/reproductions``.
        data: The folder of corpora.
        cluster: The Ray cluster to use.
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
    data: Path | None = None
    cluster: Cluster = field(default_factory=Cluster)


def reproduce(asked: Asked, say: Callable[[str], object] = print) -> int:
    """Run tables of a paper, and write them beside the paper's values.

    Args:
        asked: The tables.
        say: Called with each line of output.

    Returns:
        The exit status: 0 if the tables are complete; else 1, or 2 if each failure is a UserError.

    Raises:
        UserError: There is no such table, or the experiments, data, cluster or tracking server cannot be used.
    """
    paper, scale, changes = papers.load(asked.paper), Scale(asked.scale), papers.changes(asked.changes)
    scene = asked.scene or papers.first_scene(paper, asked.tables)
    tables = papers.tables(paper, asked.tables, scene, asked.methods, asked.rows)
    made = {n: dict(papers.cases(paper, t, scene, scale, asked.seeds, changes)) for n, t in tables.items()}
    for number, rows in made.items():
        check_columns(number, tables[number], rows, scale)
    cases = {case.id: case for rows in made.values() for row in rows.values() for case in row}
    of = papers.stem(asked.paper, scene)
    name = f"reproduce-{of}" + ("" if scale.share == 1 else f"-{scale.share:g}")
    content = scale.applied(override(paper.scenes[scene], changes | {"name": name}))
    experiment = files.validate(content, f"{asked.paper}, scene {scene}")
    out = _folder(asked.out or home() / "docs" / "reproductions")
    store = reached(experiment)
    folder = RunFolder((home() / experiment.storage / name).resolve())
    folder.claim()
    say(f"{paper.title}, {scene}. {_extent(scale, changes)}")
    job = planned(asked.cluster, folder.data(asked.data), experiment, list(cases.values()), store, folder, sweep=True)
    folder.create(content, experiment)
    done = [case for case in folder.ended() if case in cases]
    say("\n".join([f"  {len(done)} of {len(cases)} trials are there already", *summary(job)]))
    from sweeps.trials import exit_status, recorder, train, unrecorded  # with Ray Tune, which only now is there

    with recorder(job) as recording:
        outcomes = train(job, recording)
        ended = {case: one for case, one in outcomes.items() if case in cases}
        failed = [f"{case}: {one.error}" for case, one in ended.items() if one.status != "finished"]
        if failed or len(ended) < len(cases):
            left = len(cases) - len(ended)
            say("\n".join([*failed, f"{len(failed)} trials failed, {left} have not ended: the same command goes on"]))
            return exit_status(ended, left) or 1
        for number, table in tables.items():
            result = _of_table(asked, paper, number, table, made[number], outcomes)
            what = number if number.startswith("fig") else f"table{number}"
            written = _write(result, out / f"{of}-{what}{_mark(scale, asked)}")
            recording.call(partial(_log, written), unrecorded)
            say(f"\n{markdown(result)}\n{', '.join(os.path.relpath(file) for file in written)}")
    update(out)
    return 0


def _log(written: Sequence[Path], tracker: "Tracker") -> None:
    tracker.log_files(written, "reproductions")


def _of_table(
    asked: Asked, paper: Paper, number: str, table: Table, rows: Rows, outcomes: Mapping[str, Outcome]
) -> Reproduction:
    """Return a table of the outcomes, with notes on what was run."""
    scale, changes = Scale(asked.scale), papers.changes(asked.changes)
    scene = asked.scene or papers.first_scene(paper, asked.tables)
    about = [
        _extent(scale, changes),
        f"{_spread(asked.seeds)} {when(table, rows)}",
        *training_notes(rows),
        *personalization_notes(table, rows),
        *paper.departures.get(scene, ()),
        *table.departures,
    ]
    origin = Origin(asked.paper, scene, number, command(asked, scene))
    return reproduced(origin, table, scale, rows, outcomes, about)


def _spread(seeds: int) -> str:
    if seeds == 1:
        return "One seed: no spread is known, and nothing can be tested."
    return f"Mean and standard deviation over {seeds} seeds."


def _extent(scale: Scale, changes: Mapping[str, object]) -> str:
    """Return a sentence on the scale of a reproduction, and on its changes."""
    if not changes:
        return scale.sentence
    said = "" if scale.share == 1 else f"{scale.sentence} "
    return f"{said}CHANGED: {', '.join(f'{name}={json.dumps(value)}' for name, value in changes.items())}."


def _mark(scale: Scale, asked: Asked) -> str:
    """Return the suffix of files of a part of a table or of a changed run; empty for the whole table."""
    share = "" if scale.share == 1 else f"-scale{scale.share:g}"
    apart = [*sorted(asked.methods), *sorted(asked.rows), *sorted(asked.changes)]
    return share + (f"-{hashlib.sha256(json.dumps(apart).encode()).hexdigest()[:6]}" if apart else "")


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: {path} cannot be made a folder ({error.strerror}): name another") from error
    return path


def command(asked: Asked, scene: str) -> str:
    """Return the command that runs a table; its data are in FOLDER."""
    said = ["python -m platform.reproduce", asked.paper, *asked.tables, "--data FOLDER", "--scene", shlex.quote(scene)]
    said += ["--seeds", str(asked.seeds)] if asked.seeds > 1 else []
    said += ["--scale", f"{asked.scale:g}"] if asked.scale != 1 else []
    for option, words in (("methods", asked.methods), ("rows", asked.rows), ("set", asked.changes)):
        said += [f"--{option}", *map(shlex.quote, words)] if words else []
    return " ".join(said)


def render(tables: Sequence[Path]) -> list[Path]:
    """Render tables again from their CSVs, with the paper's values as its file has them now. Nothing is run.

    Returns:
        The Markdown files.

    Raises:
        UserError: The paper has no such table any more.
    """
    for file in tables:
        made = read_csv(file)
        if made.source.table not in papers.load(made.source.paper).tables:
            raise UserError(f"{file}: {made.source.paper} has no {papers.called(made.source.table)}: run it again")
        _write(named(made), file.with_suffix(""))
    for folder in {file.parent for file in tables}:
        update(folder)
    return [file.with_suffix(".md") for file in tables]


def _write(result: Reproduction, stem: Path) -> list[Path]:
    """Write a table's files. The text is that of the CSV, whose values are rounded: ``render`` gives the same."""
    files = [stem.parent / f"{stem.name}{ending}" for ending in (".md", ".csv", ".png")]
    picture(result, files[2])
    files[1].write_text(table_csv(result))
    files[0].write_text(markdown(named(read_csv(files[1]))) + f"\n![]({files[2].name})\n")
    return files
