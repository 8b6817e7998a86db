"""The values of a paper's table, from the outcomes of its trials."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dashboards.figures import UNIGRAM, Cell, Origin, Reproduction, cost, unigram_row, unit
from dashboards.trial import Outcome
from fedtext.config.experiment import Experiment
from fedtext.config.selection import BEST_ROUND, threshold
from fedtext.errors import UserError
from fedtext.records import RoundRecord
from fedtext.server.last import last_values
from fedtext.server.selection import best_round
from tune_spaces import papers
from tune_spaces.cases import Case
from tune_spaces.papers import Scale, Table
from tune_spaces.papers.notes import best_pairs, best_rows, not_run, pairs

Rows = dict[str, list[Case]]  # the cases of each row, one for each seed


def when(table: Table, rows: Rows) -> str:
    """Return a sentence on the round in which models were evaluated."""
    best = [column for column, word in table.read.items() if word.endswith(BEST_ROUND)]
    if best:
        return f"Test texts have chosen each client's round of {' and '.join(best)}; other columns are of the last one."
    chosen = {case.experiment.evaluation.select for cases in rows.values() for case in cases} - {"last"}
    if chosen:
        return (
            f"Test texts were evaluated once, with the model of the round with the best {' or '.join(sorted(chosen))}."
        )
    named = any("@" in word for word in table.read.values())
    return f"Evaluated after {'the rounds that are named' if named else 'the last round'}; nothing was chosen by it."


def check_columns(number: str, table: Table, rows: Rows, scale: Scale) -> None:
    """Check that experiments compute the metrics of a table's columns, also after changes.

    Args:
        number: Number of the table, for the message.
        table: The table.
        rows: The cases of each row.
        scale: Share of the paper's rounds and of the train texts.

    Raises:
        UserError: A row does not have a metric.
    """
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


def reproduced(
    origin: Origin,
    table: Table,
    scale: Scale,
    rows: Rows,
    outcomes: Mapping[str, Outcome],
    about: Sequence[str],
) -> Reproduction:
    """Return a table of the outcomes, with costs, single clients and notes; completed by ``named``.

    Args:
        origin: The paper, the scene and the command.
        table: The table, with the paper's values.
        scale: Share of the paper's rounds and of the train texts.
        rows: The cases of each row.
        outcomes: The outcomes, by id of the case.
        about: Notes on what was run.
    """
    found = {row: [outcomes[case.id] for case in cases] for row, cases in rows.items()}
    cells = []
    for row, ended in found.items():
        for column, word in table.read.items():
            metric, until = papers.metric_of(word, scale)
            select = rows[row][0].experiment.evaluation.select
            ours = [unit(metric).of(_value(outcome.rows[:until], metric, select)) for outcome in ended]
            cells.append(Cell(row, column, table.rows[row].paper[origin.scene].get(column), ours, unit(metric)))
    cells += _unigrams(table, found)
    costs = {row: spent for row, ended in found.items() if (spent := cost(ended))}
    shown = {row: text for row, (first, *_) in found.items() if (text := _file(first, table.shows))}
    clients = _clients(table, origin.scene, found)
    return named(Reproduction("", 0.0, cells, clients, costs, about, shown=shown, origin=origin))


def _value(records: Sequence[RoundRecord], metric: str, select: str) -> float | None:
    """Return a metric after the last round; of the selected round, if it is what the round was selected by."""
    if metric == select:
        return next((one.metrics[metric] for one in records if one.round == best_round(records, metric)), None)
    return last_values(records).get(metric)


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
    tested = pairs(paper, ran)
    if whole.alternatives:
        by = [cell for cell in read.cells if cell.column == whole.alternatives and cell.row in ran.rows and cell.whole]
        values = {cell.row: cell.found[0] for cell in by}  # under the first seed, which all rows have
        best = best_rows(ran, values, bool(by) and by[0].unit.less)
        tested = best_pairs(paper, best)
        printed = {name: values for name, values in printed.items() if name in best.values()}
    return replace(
        read,
        cells=[replace(cell, paper=printed.get(cell.row, {}).get(cell.column)) for cell in read.cells],
        title=f"{paper.title}: {papers.called(origin.table)}, {whole.title}, {origin.scene}",
        noise=paper.noise[origin.scene],
        compare=[*tested, *beside],
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
