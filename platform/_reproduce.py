"""A paper's tables: which trials they need, what has to be run of them, and what is made of their metrics."""

import argparse
import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from platform._coverage import update  # type: ignore[import-not-found]
from platform._folder import RunFolder, home
from platform._launch import announce, planned, reached

from dashboards.figures import UNIGRAM, Cell, Origin, Reproduction, cost, unigram_row, unit
from dashboards.reproduction import markdown, picture
from dashboards.reproduction_csv import read_csv, table_csv
from dashboards.trial import Outcome, last_values
from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.config.selection import evaluated_metrics, threshold
from fedtext.errors import UserError
from tune_spaces import papers
from tune_spaces.cases import Case
from tune_spaces.papers import Scale, Table
from tune_spaces.papers.notes import not_run, pairs, personalization_notes, training_notes

Rows = dict[str, list[Case]]  # a row's name, and its cases, one for each seed


def reproduce(words: argparse.Namespace) -> int:
    """Exit status 0 if every figure asked for is there, 1 if a trial did not end well."""
    paper, scale, changes = papers.load(words.paper), Scale(words.scale), papers.changes(words.set)
    scene = words.scene or papers.first_scene(paper, words.tables)
    tables = papers.tables(paper, words.tables, scene, words.methods, words.rows)
    made = {n: dict(papers.cases(paper, t, scene, scale, words.seeds, changes)) for n, t in tables.items()}
    for number, rows in made.items():
        _readable(number, tables[number], rows, scale)
    cases = {case.id: case for rows in made.values() for row in rows.values() for case in row}
    of = papers.stem(words.paper, scene)
    name = f"reproduce-{of}" + ("" if scale.share == 1 else f"-{scale.share:g}")
    content = scale.applied(files.override(paper.scenes[scene], changes | {"name": name}))
    experiment = files.validate(content, f"{words.paper}, scene {scene}")
    out = _folder(words.out or home() / "docs" / "reproductions")
    store = reached(experiment)
    folder = RunFolder((home() / experiment.storage / name).resolve())
    folder.claim()
    print(f"{paper.title}, {scene}. {_extent(scale, changes)}")
    job = planned(words, folder.data(words.data), experiment, list(cases.values()), store, folder, sweep=True)
    folder.create(content, experiment)
    done = [case for case in folder.ended() if case in cases]
    print(f"  {len(done)} of {len(cases)} trials are there already")
    announce(job)
    from platform._trials import exit_status, recorder, train, unrecorded  # as in _launch

    with recorder(job) as recording:
        outcomes = train(job, recording)
        ended = {case: one for case, one in outcomes.items() if case in cases}
        failed = [f"{case}: {one.error}" for case, one in ended.items() if one.status != "finished"]
        if failed or len(ended) < len(cases):
            left = len(cases) - len(ended)
            print("\n".join([*failed, f"{len(failed)} trials failed, {left} have not ended: the same command goes on"]))
            return exit_status(ended, left) or 1
        for number, table in tables.items():
            about = [
                _extent(scale, changes),
                f"{_spread(words.seeds)} {_when(table, made[number])}",
                *training_notes(made[number]),
                *personalization_notes(table, made[number]),
                *paper.departures.get(scene, ()),
                *table.departures,
            ]
            origin = Origin(words.paper, scene, number, command(words, scene))
            result = _result(origin, table, scale, made[number], outcomes, about)
            what = number if number.startswith("fig") else f"table{number}"
            written = _write(result, out / f"{of}-{what}{_mark(scale, words)}")
            recording.call(lambda tracker, written=written: tracker.log_files(written, "reproductions"), unrecorded)
            print(f"\n{markdown(result)}\n{', '.join(os.path.relpath(file) for file in written)}")
    update(out)
    return 0


def _spread(seeds: int) -> str:
    if seeds == 1:
        return "One seed: no spread is known, and nothing can be tested."
    return f"Mean and standard deviation over {seeds} seeds."


def _when(table: Table, rows: Rows) -> str:
    """Which model was read."""
    chosen = {case.experiment.evaluation.select for cases in rows.values() for case in cases} - {"last"}
    if chosen:
        return f"Test texts were read once, by the model of the round with the best {' or '.join(sorted(chosen))}."
    named = any("@" in word for word in table.read.values())
    return f"Read after {'the rounds that are named' if named else 'the last round'}; nothing was chosen by it."


def _readable(number: str, table: Table, rows: Rows, scale: Scale) -> None:
    """Raises UserError if a changed experiment would not give what the table reads."""
    read = {papers.reading(word, scale)[0] for word in table.read.values()}
    for name, (case, *_) in rows.items():
        if missing := sorted(read - _given(case.experiment)):
            raise UserError(
                f"--set: {papers.called(number)} reads {', '.join(missing)}, which row {name} then does not have"
            )


def _given(experiment: Experiment) -> set[str]:
    """What is read of an experiment's models on test texts, and of its way there."""
    ends = {threshold(metric, value) for metric, values in experiment.evaluation.thresholds.items() for value in values}
    found = {metric for audit in experiment.audits for metric in audit.metrics} | {"bytes_per_client"}
    return found | evaluated_metrics(experiment) | {f"{what}_to_{end}" for what in ("rounds", "bytes") for end in ends}


def _extent(scale: Scale, changes: Mapping[str, object]) -> str:
    """How much was run, and what was changed for it."""
    if not changes:
        return scale.sentence
    said = "" if scale.share == 1 else f"{scale.sentence} "
    return f"{said}CHANGED: {', '.join(f'{name}={json.dumps(value)}' for name, value in changes.items())}."


def _mark(scale: Scale, words: argparse.Namespace) -> str:
    """What tells the files of a table's part or of a shorter run from those of the whole."""
    share = "" if scale.share == 1 else f"-scale{scale.share:g}"
    apart = [*sorted(words.methods), *sorted(words.rows), *sorted(words.set)]
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
            metric, until = papers.reading(word, scale)
            ours = [unit(metric).of(last_values(outcome.rows[:until]).get(metric)) for outcome in ended]
            cells.append(Cell(row, column, table.rows[row].paper[origin.scene].get(column), ours, unit(metric)))
    cells += _unigrams(table, found)
    costs = {row: spent for row, ended in found.items() if (spent := cost(ended))}
    shown = {row: text for row, (first, *_) in found.items() if (text := _file(first, table.shows))}
    clients = _clients(table, origin.scene, found)
    return named(Reproduction("", 0.0, cells, clients, costs, about, shown=shown, origin=origin))


def named(read: Reproduction) -> Reproduction:
    """With what the paper's file says of it: its figures, title, noise, the pairs to be tested, and the rows that were
    not run."""
    origin = read.origin
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
    """A language model's row of word counts alone, in the columns that it has a figure for; one for each corpus that
    rows differ in."""
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


def command(words: argparse.Namespace, scene: str) -> str:
    """What a person types for it, wherever the data lie."""
    said = ["python -m platform.reproduce", words.paper, *words.tables, "--data FOLDER", "--scene", shlex.quote(scene)]
    said += ["--seeds", str(words.seeds)] if words.seeds > 1 else []
    said += ["--scale", f"{words.scale:g}"] if words.scale != 1 else []
    for option in ("methods", "rows", "set"):
        named = getattr(words, option)
        said += [f"--{option}", *map(shlex.quote, named)] if named else []
    return " ".join(said)


def render(tables: Sequence[Path]) -> int:
    """Writes tables anew from their CSVs, with the paper's figures as its file has them now; nothing is run."""
    for file in tables:
        made = read_csv(file)
        if made.origin.table not in papers.load(made.origin.paper).tables:
            raise UserError(f"{file}: {made.origin.paper} has no {papers.called(made.origin.table)}: run it again")
        _write(named(made), file.with_suffix(""))
        print(os.path.relpath(file.with_suffix(".md")))
    for folder in {file.parent for file in tables}:
        update(folder)
    return 0


def _file(outcome: Outcome, name: str) -> str:
    """What stands last in a file of a run's; empty if there is none."""
    return next((record.files[name] for record in reversed(outcome.rows) if name in record.files), "")


def _clients(table: Table, scene: str, found: Mapping[str, list[Outcome]]) -> list[Cell]:
    """The clients' figures, where the paper has them."""
    metric, theirs = next(iter(table.read.values())), table.clients.get(scene, {})
    cells = []
    for client, known in theirs.items():
        for row, ended in found.items():
            values = [_client(outcome, client, metric) for outcome in ended]
            ours = [unit(metric).of(value) for value in values if value is not None]
            cells.append(Cell(client, row, known.get(row), ours, unit(metric)))
    return cells


def _client(outcome: Outcome, name: str, metric: str) -> float | None:
    """What a client had last."""
    for record in reversed(outcome.rows):
        for client, values in record.clients.items():
            if _alike(client, name) and metric in values:
                return float(values[metric])
    return None


def _alike(ours: str, theirs: str) -> bool:
    """``electronics`` and ``Elec.``, ``magazines`` and ``Mag.``, ``sports_outdoors`` and ``Sports``."""
    return ours.lower().startswith(theirs.rstrip(".").lower())


def _write(result: Reproduction, stem: Path) -> list[Path]:
    files = [stem.parent / f"{stem.name}{ending}" for ending in (".md", ".csv", ".png")]
    picture(result, files[2])
    files[0].write_text(markdown(result) + f"\n![]({files[2].name})\n")
    files[1].write_text(table_csv(result))
    return files
