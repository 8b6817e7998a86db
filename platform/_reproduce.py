"""A paper's tables: which trials they need, what has to be run of them, and what is made of their readings."""

import argparse
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from platform._folder import RunFolder, home  # type: ignore[import-not-found]
from platform._launch import announce, opened, planned

from dashboards.reproduction import Cell, Reproduction, cost, markdown, percent, picture, table_csv
from dashboards.trial import Outcome, last_values
from fedtext import config
from tune_spaces import papers
from tune_spaces.cases import Case
from tune_spaces.papers import Paper, Scale, Table

Rows = dict[str, list[Case]]  # a row's name, and its cases, one for each seed


def reproduce(words: argparse.Namespace) -> int:
    """Exit status 0 if every figure asked for is there, 1 if a trial did not end well."""
    paper, scale = papers.load(words.paper), Scale(words.scale)
    scene = words.scene or next(iter(paper.scenes))
    overrides = dict(config.parse_override(word) for word in words.set)
    tables = {number: papers.table(paper, number, scene, words.methods) for number in words.tables}
    made = {n: dict(papers.cases(paper, t.rows, scene, scale, words.seeds, overrides)) for n, t in tables.items()}
    cases = {case.id: case for rows in made.values() for row in rows.values() for case in row}
    name = f"reproduce-{words.paper}-{scene}" + ("" if scale.share == 1 else f"-{scale.share:g}")
    content = scale.applied(paper.scenes[scene]) | {"name": name}
    experiment = config.validate(content, f"{words.paper}, scene {scene}")
    store = opened(experiment)
    folder = RunFolder(home() / experiment.storage / name)
    print(f"{paper.title}, {scene}. {scale.sentence}")
    with ThreadPoolExecutor(1) as recorder:
        job = planned(words, experiment, list(cases.values()), store, folder, recorder, sweep=True)
        folder.create(content, experiment)
        done = [case for case in folder.ended() if case in cases]
        print(f"  {len(done)} of {len(cases)} trials are there already")
        announce(job)
        from platform._trials import train  # as in _launch

        tracker, outcomes = train(job, recorder)
    words.out.mkdir(parents=True, exist_ok=True)
    for number, table in tables.items():
        result = _result(paper, number, table, scene, scale, made[number], outcomes, overrides)
        files = _write(
            result, words.out / f"{words.paper}-{scene}-table{number}{'' if scale.share == 1 else '-scaled'}"
        )
        tracker.log_files(files, "reproductions")
        print(f"\n{markdown(result)}\n{', '.join(os.path.relpath(file) for file in files)}")
    failed = [outcome for case, outcome in outcomes.items() if case in cases and outcome.status == "failed"]
    for outcome in failed:
        print(f"failed: {outcome.error}")
    return 1 if failed or len(outcomes) < len(cases) else 0


def _result(
    paper: Paper,
    number: str,
    table: Table,
    scene: str,
    scale: Scale,
    rows: Rows,
    outcomes: Mapping[str, Outcome],
    overrides: Mapping[str, object],
) -> Reproduction:
    ended = {row: [outcomes[case.id] for case in cases if case.id in outcomes] for row, cases in rows.items()}
    good = {row: [outcome for outcome in found if outcome.status == "finished"] for row, found in ended.items()}
    cells = []
    for row, found in good.items():
        last = [last_values(outcome.rows) for outcome in found]
        for column, metric in table.read.items():
            ours = percent([values[metric] for values in last if metric in values])
            cells.append(Cell(row, column, table.rows[row].paper[scene].get(column), ours))
    seeds = {len(found) for found in good.values()}
    about = [
        scale.sentence,
        f"Seeds: {'-'.join(str(count) for count in sorted({min(seeds), max(seeds)}))} of each row.",
        "Read after the last round; nothing was chosen by it.",
    ]
    if overrides:
        about.append("Changed in every experiment: " + ", ".join(f"{key}={value}" for key, value in overrides.items()))
    costs = {row: spent for row, found in good.items() if (spent := cost(found))}
    title = f"{paper.title}: table {number}, {table.title}, {scene}"
    return Reproduction(title, paper.noise[scene], cells, _clients(table, scene, good), costs, about)


def _clients(table: Table, scene: str, good: Mapping[str, list[Outcome]]) -> list[Cell]:
    """The clients' figures, where the paper has them; their order is the corpus's, their names compared by letters."""
    (metric, *_), theirs = table.read.values(), table.clients.get(scene, {})
    cells = []
    for client, figures in theirs.items():
        for row, found in good.items():
            values = [_client(outcome, client, metric) for outcome in found]
            cells.append(Cell(client, row, figures.get(row), percent([value for value in values if value is not None])))
    return cells


def _client(outcome: Outcome, name: str, metric: str) -> float | None:
    """What a client had last."""
    for row in reversed(outcome.rows):
        for client, values in row["clients"].items():
            if _alike(client, name) and metric in values:
                return float(values[metric])
    return None


def _alike(ours: str, theirs: str) -> bool:
    """``electronics`` and ``Elec.``, ``magazines`` and ``Mag.``, ``sports_outdoors`` and ``Sports``."""
    return ours.lower().startswith(theirs.rstrip(".").lower())


def _write(result: Reproduction, stem: Path) -> list[Path]:
    files = [stem.with_suffix(ending) for ending in (".md", ".csv", ".png")]
    picture(result, files[2])
    files[0].write_text(markdown(result) + f"\n![]({files[2].name})\n")
    files[1].write_text(table_csv(result))
    return files
