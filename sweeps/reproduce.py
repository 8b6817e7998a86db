"""Reproductions of papers' tables: their trials, and the tables made of their metrics."""

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.figures import UNIGRAM, Cell, Origin, Reproduction, cost, unigram_row, unit
from dashboards.reproduction import markdown, picture
from dashboards.reproduction_csv import read_csv, table_csv
from dashboards.trial import Outcome, last_values
from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.config.selection import threshold
from fedtext.errors import UserError
from sweeps.coverage import update
from sweeps.folder import RunFolder, home
from sweeps.prepare import planned, reached
from sweeps.request import Cluster
from sweeps.summary import summary
from tune_spaces import papers
from tune_spaces.cases import Case
from tune_spaces.papers import Paper, Scale, Table
from tune_spaces.papers.notes import not_run, pairs, personalization_notes, training_notes

if TYPE_CHECKING:
    from dashboards.tracking import Tracker

Rows = dict[str, list[Case]]  # the cases of each row, one for each seed


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
        _check_columns(number, tables[number], rows, scale)
    cases = {case.id: case for rows in made.values() for row in rows.values() for case in row}
    of = papers.stem(asked.paper, scene)
    name = f"reproduce-{of}" + ("" if scale.share == 1 else f"-{scale.share:g}")
    content = scale.applied(files.override(paper.scenes[scene], changes | {"name": name}))
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
        f"{_spread(asked.seeds)} {_when(table, rows)}",
        *training_notes(rows),
        *personalization_notes(table, rows),
        *paper.departures.get(scene, ()),
        *table.departures,
    ]
    origin = Origin(asked.paper, scene, number, command(asked, scene))
    return _result(origin, table, scale, rows, outcomes, about)


def _spread(seeds: int) -> str:
    if seeds == 1:
        return "One seed: no spread is known, and nothing can be tested."
    return f"Mean and standard deviation over {seeds} seeds."


def _when(table: Table, rows: Rows) -> str:
    """Return a sentence on the round in which models were evaluated."""
    chosen = {case.experiment.evaluation.select for cases in rows.values() for case in cases} - {"last"}
    if chosen:
        return (
            f"Test texts were evaluated once, with the model of the round with the best {' or '.join(sorted(chosen))}."
        )
    named = any("@" in word for word in table.read.values())
    return f"Evaluated after {'the rounds that are named' if named else 'the last round'}; nothing was chosen by it."


def _check_columns(number: str, table: Table, rows: Rows, scale: Scale) -> None:
    """Raise UserError if a changed experiment would not compute the metrics of the table's columns."""
    needed = {papers.metric_of(word, scale)[0] for word in table.read.values()}
    for name, (case, *_) in rows.items():
        if missing := sorted(needed - _metrics(case.experiment)):
            raise UserError(
                f"--set: {papers.called(number)} needs {', '.join(missing)}, which row {name} then does not have"
            )


def _metrics(experiment: Experiment) -> set[str]:
    """Return the metrics of an experiment that a table can have: of evaluations, of audits, and of its cost."""
    ends = {threshold(metric, value) for metric, values in experiment.evaluation.thresholds.items() for value in values}
    found = {metric for audit in experiment.audits for metric in audit.metrics} | {"bytes_per_client"}
    return found | experiment.evaluated_metrics | {f"{what}_to_{end}" for what in ("rounds", "bytes") for end in ends}


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


def _result(
    origin: Origin,
    table: Table,
    scale: Scale,
    rows: Rows,
    outcomes: Mapping[str, Outcome],
    about: Sequence[str],
) -> Reproduction:
    found = {row: [outcomes[case.id] for case in cases] for row, cases in rows.items()}
    cells = []
    for row, ended in found.items():
        for column, word in table.read.items():
            metric, until = papers.metric_of(word, scale)
            ours = [unit(metric).of(last_values(outcome.rows[:until]).get(metric)) for outcome in ended]
            cells.append(Cell(row, column, table.rows[row].paper[origin.scene].get(column), ours, unit(metric)))
    cells += _unigrams(table, found)
    costs = {row: spent for row, ended in found.items() if (spent := cost(ended))}
    shown = {row: text for row, (first, *_) in found.items() if (text := _file(first, table.shows))}
    clients = _clients(table, origin.scene, found)
    return named(Reproduction("", 0.0, cells, clients, costs, about, shown=shown, origin=origin))


def named(read: Reproduction) -> Reproduction:
    """Return a table completed from the paper's file: the paper's values, title, noise, the pairs to be tested, and the
    rows that were not run."""
    origin = read.source
    paper = papers.load(origin.paper)
    whole, rows = paper.tables[origin.table], dict.fromkeys(cell.row for cell in read.cells)
    ran = whole.model_copy(update={"rows": {name: row for name, row in whole.rows.items() if name in rows}})
    counted = [row for row in rows if row.startswith(UNIGRAM)]
    beside = [(row, counted[0]) for row in rows if row not in counted] if len(counted) == 1 else []
    printed = {name: row.paper.get(origin.scene, {}) for name, row in whole.rows.items()}
    return replace(
        read,
        cells=[replace(cell, paper=printed.get(cell.row, {}).get(cell.column)) for cell in read.cells],
        title=f"{paper.title}: {papers.called(origin.table)}, {whole.title}, {origin.scene}",
        noise=paper.noise[origin.scene],
        compare=[*pairs(paper, ran), *beside],
        missing=not_run(whole, origin.scene, rows),
    )


def _unigrams(table: Table, found: Mapping[str, list[Outcome]]) -> list[Cell]:
    """Return the cells of the unigram row of language models; one row for each of the rows' corpora."""
    texts: dict[tuple[float | None, ...], list[str]] = {}
    values = {row: [last_values(outcome.rows) for outcome in ended] for row, ended in found.items()}
    for row, last in values.items():
        texts.setdefault(tuple(each.get("perplexity_unigram") for each in last), []).append(row)
    cells = []
    for counted, rows in texts.items():
        name = unigram_row(rows, len(texts) == 1)
        if all(counted) and not {"perplexity", "perplexity_p90"}.isdisjoint(table.read.values()):
            for column, metric in table.read.items():
                ours = [unit(metric).of(each.get(f"{metric}_unigram")) for each in values[rows[0]]]
                cells.append(Cell(name, column, None, ours if any(ours) else [], unit(metric)))
    return cells


def command(asked: Asked, scene: str) -> str:
    """Return the command that runs a table; its data are in FOLDER."""
    said = ["python -m platform.reproduce", asked.paper, *asked.tables, "--data FOLDER", "--scene", shlex.quote(scene)]
    said += ["--seeds", str(asked.seeds)] if asked.seeds > 1 else []
    said += ["--scale", f"{asked.scale:g}"] if asked.scale != 1 else []
    for option, named in (("methods", asked.methods), ("rows", asked.rows), ("set", asked.changes)):
        said += [f"--{option}", *map(shlex.quote, named)] if named else []
    return " ".join(said)


def render(tables: Sequence[Path]) -> list[Path]:
    """Render tables again from their CSVs, with the paper's values as its file has them now. Nothing is run.

    Returns:
        The Markdown files.
    """
    for file in tables:
        made = read_csv(file)
        if made.source.table not in papers.load(made.source.paper).tables:
            raise UserError(f"{file}: {made.source.paper} has no {papers.called(made.source.table)}: run it again")
        _write(named(made), file.with_suffix(""))
    for folder in {file.parent for file in tables}:
        update(folder)
    return [file.with_suffix(".md") for file in tables]


def _file(outcome: Outcome, name: str) -> str:
    """Return the last content of a file of a run; empty if there is none."""
    return next((record.files[name] for record in reversed(outcome.rows) if name in record.files), "")


def _clients(table: Table, scene: str, found: Mapping[str, list[Outcome]]) -> list[Cell]:
    """Return the cells of single clients, for the clients of which the paper has values."""
    metric, theirs = next(iter(table.read.values())), table.clients.get(scene, {})
    cells = []
    for client, known in theirs.items():
        for row, ended in found.items():
            values = [_client(outcome, client, metric) for outcome in ended]
            ours = [unit(metric).of(value) for value in values if value is not None]
            cells.append(Cell(client, row, known.get(row), ours, unit(metric)))
    return cells


def _client(outcome: Outcome, name: str, metric: str) -> float | None:
    """Return the last value of a client's metric."""
    for record in reversed(outcome.rows):
        for client, values in record.clients.items():
            if _alike(client, name) and metric in values:
                return float(values[metric])
    return None


def _alike(ours: str, theirs: str) -> bool:
    """Whether ``theirs`` abbreviates a client's name: ``Elec.`` ``electronics``, ``Sports`` ``sports_outdoors``."""
    return ours.lower().startswith(theirs.rstrip(".").lower())


def _write(result: Reproduction, stem: Path) -> list[Path]:
    files = [stem.parent / f"{stem.name}{ending}" for ending in (".md", ".csv", ".png")]
    picture(result, files[2])
    files[0].write_text(markdown(result) + f"\n![]({files[2].name})\n")
    files[1].write_text(table_csv(result))
    return files
