"""The table of what was run of each paper, from the CSVs of its tables."""

from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

from dashboards.figures import UNIGRAM, Reproduction
from dashboards.reproduction_csv import read_csv
from tune_spaces import papers
from tune_spaces.papers import Paper

FILE, BEGIN, END = "README.md", "<!-- coverage: written by platform.reproduce -->", "<!-- end of coverage -->"
HEADS = (
    "paper",
    "table",
    "data set",
    "rows of the paper's that were run",
    "seeds",
    "how much, and what was changed",
    "file",
)


def coverage(folder: Path) -> str:
    """Return Markdown: a line for each table that was run, in the papers' order, and the tables that were not."""
    made = [(path, read_csv(path)) for path in sorted(folder.glob("*.csv"))]
    lines = [f"| {' | '.join(HEADS)} |", "|" + " --- |" * len(HEADS)]
    left = []
    for name in sorted(file.stem for file in papers.PAPERS.glob("*.yaml")):
        paper = papers.load(name)
        ran = [(path, one) for path, one in made if one.source.paper == name]
        ran.sort(key=lambda item: (list(paper.tables).index(item[1].source.table), item[0].name))
        lines += [f"| {' | '.join(_cells(name, paper, path, one))} |" for path, one in ran]
        missing = _missing(paper, {(one.source.table, one.source.scene) for _, one in ran})
        left.append(f"- {name}: {'; '.join(missing) or 'something of every table was run'}.")
    return "\n".join([*lines, "", "Tables of which nothing was run:", "", *left])


def _cells(name: str, paper: Paper, path: Path, made: Reproduction) -> list[str]:
    table, scene = made.source.table, made.source.scene
    printed = {row for row, one in paper.tables[table].rows.items() if one.paper.get(scene)}
    ran = dict.fromkeys(cell.row for cell in made.cells if cell.seeds and not cell.row.startswith(UNIGRAM))
    share = f"{len(printed & set(ran))} of {len(printed)}" if printed else f"{len(ran)} rows; the paper has no values"
    return [name, papers.called(table), scene, share, str(made.seeds), _extent(made), f"[{path.stem}]({path.stem}.md)"]


def _extent(made: Reproduction) -> str:
    """Return the scale and changes of a run, and the first words of departures if these are in capitals."""
    first, *others = made.about
    loud = [" ".join(takewhile(str.isupper, sentence.replace(":", " :").split())) for sentence in others]
    return " ".join([first, *(f"{words}." for words in loud if " " in words and "," not in words)])  # else a list


def _missing(paper: Paper, ran: set[tuple[str, str]]) -> Iterable[str]:
    """Yield for each scene the tables for which the paper has values, and none was run."""
    for scene in paper.scenes:
        numbers = [
            papers.called(number)
            for number, table in paper.tables.items()
            if (number, scene) not in ran and any(row.paper.get(scene) for row in table.rows.values())
        ]
        if numbers:
            yield f"{', '.join(numbers)} on {scene}"


def update(folder: Path) -> None:
    """Rewrite the table in the folder's README, if that has a place for it."""
    file = folder / FILE
    if not file.is_file():
        return
    before, begin, rest = file.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        file.write_text(f"{before}{BEGIN}\n{coverage(folder)}\n{END}{after}")
