"""Tables of papers that are kept as files: read, extended by the rows of a later run, and written."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dashboards.figures import UNIGRAM, Cell, Cost, Origin, Reproduction, counted_rows, unigram_row
from dashboards.reproduction import markdown, picture
from dashboards.reproduction_csv import read_csv, table_csv
from fedtext.errors import UserError, writing
from fedtext.runtime import durable
from fedtext.runtime.lock import locked
from sweeps.coverage import update
from sweeps.results import named
from tune_spaces import papers

Value = TypeVar("Value")
DIGITS = 1e-9  # relative difference of a value and itself as a file has it
PATIENCE_S = 120.0  # of a command that finds another one writing tables


def seeds_of(made: Reproduction, row: str, columns: Collection[str] = ()) -> int:
    """Return the number of seeds that a row was run with.

    Args:
        made: The table.
        row: The row.
        columns: Columns that the row has to have.

    Returns:
        The number; 0 if the row, or one of the columns, is not there.
    """
    seeds = {cell.column: len(cell.seeds) for cell in made.cells if cell.row == row}
    return max(seeds.values(), default=0) if seeds.keys() >= set(columns) else 0


def merged(kept: Reproduction, new: Reproduction, later: Collection[str] = ()) -> Reproduction:
    """Return ``kept`` with the rows of ``new``, in the order of the paper's table.

    Of a row that both have, the one with more seeds stays; of equally many the new one.

    Args:
        kept: The table as it was written before.
        new: The same table of the same scale and changes, with some rows. Its notes become those of the result.
        later: Rows of both, of which ``new`` has only the seeds that follow those of ``kept``.
    """
    new = _continued(kept, new, later)
    ours = {cell.row for cell in new.cells if not cell.row.startswith(UNIGRAM)}
    stay = {row for row in ours if seeds_of(kept, row) > seeds_of(new, row)}
    before = {cell.row for cell in kept.cells if not cell.row.startswith(UNIGRAM)} - (ours - stay)
    parts = ((kept, before), (new, ours - stay))
    table = papers.load(new.source.paper).tables[new.source.table]
    order = [*table.rows, *sorted(before - set(table.rows))]
    cells = [cell for made, rows in parts for cell in made.cells if cell.row in rows]
    clients = [cell for made, rows in parts for cell in made.clients if cell.column in rows]
    counted = {row: values for made, rows in parts for row, values in _counted(made).items() if row in rows}
    return replace(
        new,
        cells=sorted(cells, key=lambda cell: order.index(cell.row)) + _unigrams(counted, order),
        clients=sorted(clients, key=lambda cell: order.index(cell.column)),
        costs=_in_order({row: one for made, rows in parts for row, one in made.costs.items() if row in rows}, order),
        shown=_in_order({row: text for made, rows in parts for row, text in made.shown.items() if row in rows}, order),
        commits=_in_order({row: of for made, rows in parts for row, of in made.commits.items() if row in rows}, order),
        data=_in_order({row: of for made, rows in parts for row, of in made.data.items() if row in rows}, order),
        origin=_origin(kept.source if before else None, new.source),
    )


def _continued(kept: Reproduction, new: Reproduction, rows: Collection[str]) -> Reproduction:
    """Return ``new`` with the kept values of ``rows`` in front: of these rows it has later seeds only."""
    before = {(cell.row, cell.column): cell.seeds for cell in (*kept.cells, *kept.clients)}
    earlier, counted = _counted(kept), _counted(new)
    for row in set(counted).intersection(rows):
        values = {cell.column: cell.seeds[: seeds_of(kept, row)] for cell in earlier.get(row, ())}
        counted[row] = [replace(cell, seeds=[*values.get(cell.column, ()), *cell.seeds]) for cell in counted[row]]

    def whole(cell: Cell, row: str) -> Cell:
        return replace(cell, seeds=[*before[cell.row, cell.column], *cell.seeds]) if row in rows else cell

    cells = [whole(cell, cell.row) for cell in new.cells if not cell.row.startswith(UNIGRAM)]
    return replace(
        new,
        cells=cells + _unigrams(counted, list(dict.fromkeys(cell.row for cell in cells))),
        clients=[whole(cell, cell.column) for cell in new.clients],
        costs={row: _mean_cost(kept, new, row) if row in rows else one for row, one in new.costs.items()},
        shown={**new.shown, **{row: text for row, text in kept.shown.items() if row in rows}},
        commits={row: _commits(kept, new, row) if row in rows else of for row, of in new.commits.items()},
        data={**{row: of for row, of in kept.data.items() if row in rows}, **new.data},
    )


def _mean_cost(kept: Reproduction, new: Reproduction, row: str) -> Cost:
    """Return the mean cost of a round over the seeds of both tables."""
    parts = [(made.costs[row], seeds_of(made, row)) for made in (kept, new) if row in made.costs]
    every = sum(seeds for _, seeds in parts)
    cpu = [one.cpu_seconds * seeds for one, seeds in parts if one.cpu_seconds is not None]
    return Cost(
        sum(one.seconds * seeds for one, seeds in parts) / every,
        sum(cpu) / every if len(cpu) == len(parts) else None,
        sum(one.bytes_per_client * seeds for one, seeds in parts) / every,
    )


def _commits(kept: Reproduction, new: Reproduction, row: str) -> str:
    """Return the commits of the code that ran the seeds of both tables."""
    return ", ".join(dict.fromkeys(f"{kept.commits.get(row, '?')}, {new.commits[row]}".split(", ")))


def _in_order(values: Mapping[str, Value], order: Sequence[str]) -> dict[str, Value]:
    return {row: values[row] for row in order if row in values}


def _origin(kept: Origin | None, new: Origin) -> Origin:
    """Return the origin with the commands of both."""
    commands = dict.fromkeys([*(kept.commands if kept else ()), *new.commands])
    return replace(new, command="\n".join(commands))


def _counted(made: Reproduction) -> dict[str, list[Cell]]:
    """Return the unigram cells of the corpus that each row was trained on; rows without any are left out."""
    rows = list(dict.fromkeys(cell.row for cell in made.cells if not cell.row.startswith(UNIGRAM)))
    found: dict[str, list[Cell]] = {}
    for cell in made.cells:
        if cell.row.startswith(UNIGRAM):
            for row in counted_rows(cell.row, rows):
                found.setdefault(row, []).append(cell)
    return found


def _unigrams(counted: Mapping[str, list[Cell]], order: Sequence[str]) -> list[Cell]:
    """Return the unigram rows of all rows together: one for each corpus, with the most seeds that a row has."""
    corpora: list[tuple[list[str], list[Cell]]] = []
    for row in sorted(counted, key=lambda row: (-len(counted[row][0].seeds), order.index(row))):
        same = next((rows for rows, cells in corpora if _agree(cells, counted[row])), None)
        if same is None:
            corpora.append(([row], counted[row]))
        else:
            same.append(row)
    return [
        replace(cell, row=unigram_row(sorted(rows, key=order.index), len(corpora) == 1))
        for rows, cells in corpora
        for cell in cells
    ]


def _agree(longer: Sequence[Cell], other: Sequence[Cell]) -> bool:
    """Whether two rows have the same values in each column, under the seeds that both have, as far as a file keeps
    their digits."""
    ours = {cell.column: cell.seeds for cell in longer}
    pairs = [pair for cell in other for pair in zip(ours[cell.column], cell.seeds, strict=False)]
    return all(
        one == two if one is None or two is None else math.isclose(one, two, rel_tol=DIGITS) for one, two in pairs
    )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other commands on this machine from writing tables of a folder in this block.

    Between reading a table and writing it with more rows, another command could write its own, which would be lost.

    Raises:
        UserError: Another command writes there for too long, or the folder cannot be written.
    """
    with ExitStack() as block:
        with writing(folder):
            ours = block.enter_context(locked(folder, remove=True, patience_s=PATIENCE_S))
        if not ours:
            raise UserError(f"{folder}: another command is writing tables there: give the same command again later")
        yield


def write(result: Reproduction, stem: Path) -> list[Path]:
    """Write a table's files. The text is that of the CSV, whose values are rounded: ``render`` gives the same.

    Args:
        result: The table.
        stem: The path of the files without their endings.

    Returns:
        The Markdown file, the CSV and the picture.

    Raises:
        UserError: They cannot be written. The CSV is the old one or the new one as a whole: it alone has the values.
    """
    files = [stem.parent / f"{stem.name}{ending}" for ending in (".md", ".csv", ".png")]
    with writing(stem.parent, then="the same command writes them again"):
        durable.write(files[1], table_csv(result))
        durable.write(files[2], picture(result))
        durable.write(files[0], markdown(named(read_csv(files[1]))) + f"\n![]({files[2].name})\n")
    return files


def render(tables: Sequence[Path]) -> list[Path]:
    """Render tables again from their CSVs, with the paper's values as its file has them now. Nothing is run.

    Returns:
        The Markdown files.

    Raises:
        UserError: The paper has no such table any more, or the files cannot be written.
    """
    for file in tables:
        read_csv(file)  # before the folder of a table that does not exist is made for the lock
        with alone(file.parent):
            made = read_csv(file)
            if made.source.table not in papers.load(made.source.paper).tables:
                raise UserError(f"{file}: {made.source.paper} has no {papers.called(made.source.table)}: run it again")
            write(named(made), file.with_suffix(""))
    for folder in {file.parent for file in tables}:
        with alone(folder):
            update(folder)
    return [file.with_suffix(".md") for file in tables]
