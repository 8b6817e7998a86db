"""A reproduced table as CSV, complete enough to render its Markdown and its picture again.

The column ``part`` is the kind of a line: ``mean``, a cell of the table; ``client``, a value of a single client;
``cost``, a mean over rounds; ``about``, a sentence on what was run; ``shown``, text that a run has written;
``commit``, of the code that ran a row; ``data``, a digest of its data; ``origin``, the table and the commands.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dashboards.figures import UNITS, Cell, Cost, Origin, Reproduction
from fedtext.errors import UserError

COLUMNS = ("part", "row", "column", "unit", "paper", "ours", "deviation", "seeds", "values", "text")
COSTS = {"seconds": "s / round", "cpu_seconds": "CPU s", "bytes_per_client": "bytes / client"}
Line = Mapping[str, str]


def table_csv(made: Reproduction) -> str:
    """Return ``made`` as CSV, without what the paper's own file holds: title, noise, pairs to compare, missing rows.

    The column ``values`` has our value under each seed, - for none; ``ours`` and ``deviation`` are their mean and
    standard deviation.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_lines(made))
    return text.getvalue()


def _lines(made: Reproduction) -> Iterable[dict[str, object]]:
    for name, value in vars(made.origin).items() if made.origin else ():
        yield {"part": "origin", "column": name, "text": value}
    for sentence in made.about:
        yield {"part": "about", "text": sentence}
    for part, cells in (("mean", made.cells), ("client", made.clients)):
        for cell in cells:
            ours = {"ours": cell.ours.mean, "deviation": cell.ours.deviation} if cell.ours else {}
            values = " ".join("-" if value is None else f"{value:.10g}" for value in cell.seeds)
            named = {"part": part, "row": cell.row, "column": cell.column, "unit": cell.unit.name, "paper": cell.paper}
            yield {**named, **ours, "seeds": len(cell.seeds), "values": values}
    for row, spent in made.costs.items():
        for name, value in vars(spent).items():
            if value is not None:
                yield {"part": "cost", "row": row, "column": COSTS[name], "ours": value}
    for row, shown in made.shown.items():
        yield {"part": "shown", "row": row, "text": shown}
    for row, commit in made.commits.items():
        yield {"part": "commit", "row": row, "text": commit}
    for row, digest in made.data.items():
        yield {"part": "data", "row": row, "text": digest}


def read_csv(path: Path) -> Reproduction:
    """Read a file that ``table_csv`` has written.

    Raises:
        UserError: It cannot be read, or is another file.
    """
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        origin = {line["column"]: line["text"] for line in lines if line["part"] == "origin"}
        return Reproduction(
            title="",
            noise=0.0,
            cells=_cells(lines, "mean"),
            clients=_cells(lines, "client"),
            costs=_costs(lines),
            about=[line["text"] for line in lines if line["part"] == "about"],
            shown={line["row"]: line["text"] for line in lines if line["part"] == "shown"},
            commits={line["row"]: line["text"] for line in lines if line["part"] == "commit"},
            data={line["row"]: line["text"] for line in lines if line["part"] == "data"},
            origin=Origin(**origin),
        )
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): give a CSV that this command has written"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} is no table that this command has written, or one of an earlier version: run its table again"
        ) from error


def _cells(lines: Sequence[Line], part: str) -> list[Cell]:
    return [
        Cell(
            line["row"],
            line["column"],
            float(line["paper"]) if line["paper"] else None,
            [None if value == "-" else float(value) for value in line["values"].split()],
            UNITS[line["unit"]],
        )
        for line in lines
        if line["part"] == part
    ]


def _costs(lines: Sequence[Line]) -> dict[str, Cost]:
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        if line["part"] == "cost":
            found.setdefault(line["row"], {})[line["column"]] = float(line["ours"])
    seconds, cpu, sent = COSTS.values()
    return {row: Cost(values[seconds], values.get(cpu), values[sent]) for row, values in found.items()}
