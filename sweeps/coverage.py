"""The list of what was run of each paper, from the CSVs of its tables, in the papers' pages."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from dashboards.figures import UNIGRAM, Reproduction
from dashboards.paired import compare_order, differs
from dashboards.reproduction_csv import read_csv
from fedtext.errors import writing
from fedtext.runtime import durable
from sweeps.results import named
from tune_spaces import papers
from tune_spaces.papers import Paper, Scale

BEGIN, END = "<!-- {}: written by platform.reproduce -->", "<!-- end of what platform.reproduce writes -->"
HEADS = ("table", "data set", "rows", "seeds", "in the paper's order", "level", "settings", "file")
LEGEND = (
    "Rows: those of the paper's that were run. In the paper's order: pairs that the paper orders, and that stand "
    "so here; in brackets how many of the others are significant (paired t test over seeds, p < 0.05, uncorrected). "
    "Level: values that differ from the paper's by no more than its own noise and half our 95 % confidence interval."
)


def coverage(paper: str, folder: Path, where: str = "") -> str:
    """Return Markdown: a line for each table of ``paper`` that was run, and what was not run.

    Args:
        paper: The name of the paper.
        folder: The folder of the tables.
        where: The path of the folder from the page, for its links: ``tables/``.
    """
    content = papers.load(paper)
    made = [
        (path, named(one)) for path in sorted(folder.glob("*.csv")) if (one := read_csv(path)).source.paper == paper
    ]
    tables, whole = list(content.tables), Scale().sentence
    made.sort(key=lambda item: (tables.index(item[1].source.table), item[1].about[0] != whole, item[0].name))
    lines = [f"| {' | '.join(HEADS)} |", "|" + " --- |" * len(HEADS)]
    lines += [f"| {' | '.join(_cells(content, one, f'[{path.stem}]({where}{path.stem}.md)'))} |" for path, one in made]
    missing = [*_missing(content, {(one.source.table, one.source.scene) for _, one in made})]
    lines += ["", LEGEND, "", f"Nothing was run of: {'; '.join(missing) or 'no table'}."]
    return "\n".join(lines)


def _cells(paper: Paper, made: Reproduction, link: str) -> list[str]:
    table, scene = made.source.table, made.source.scene
    printed = {row for row, one in paper.tables[table].rows.items() if one.paper.get(scene)}
    ran = dict.fromkeys(cell.row for cell in made.cells if cell.seeds and not cell.row.startswith(UNIGRAM))
    share = f"{len(printed & set(ran))} of {len(printed)}" if printed else f"{len(ran)}; the paper has no values"
    seeds = f"{made.seeds}" if made.fewest_seeds == made.seeds else f"{made.fewest_seeds} to {made.seeds}"
    return [papers.called(table), scene, share, seeds, _orders(made), _levels(made), _extent(made), link]


def _orders(made: Reproduction) -> str:
    """Return ``8 of 10 (0)`` over all columns; empty if the paper orders no rows that were run."""
    found = [compare_order(made, column) for column in dict.fromkeys(cell.column for cell in made.cells)]
    pairs = sum(one.pairs for one in found)
    significant = sum(len(one.beyond) + len(one.close) for one in found)
    tested = f" ({significant})" if made.seeds > 1 else ""
    return f"{sum(one.kept for one in found)} of {pairs}{tested}" if pairs else ""


def _levels(made: Reproduction) -> str:
    """Return ``4 of 5``; empty if the paper has no values of what was run."""
    both = [cell for cell in made.cells if cell.paper is not None and cell.whole]
    near = [cell for cell in both if not differs(cell, made.noise_of(cell))]
    return f"{len(near)} of {len(both)}" if both else ""


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


def update(folder: Path) -> list[Path]:
    """Rewrite the lists in the papers' pages, which lie in the folder above the tables'.

    Args:
        folder: The folder of the tables.

    Returns:
        The pages that have a list, called as their papers: ``kteps.md``.

    Raises:
        UserError: A page cannot be written, and is unchanged.
    """
    pages = [folder.parent / f"{name}.md" for name in _names()]
    return [page for page in pages if page.is_file() and _rewritten(page, folder)]


def _names() -> Sequence[str]:
    return sorted(file.stem for file in papers.PAPERS.glob("*.yaml"))


def _rewritten(page: Path, folder: Path) -> bool:
    """Rewrite the list in a page. Returns whether it has a place for one. Raises UserError if it cannot be written."""
    start = BEGIN.format(page.stem)
    before, begin, rest = page.read_text(encoding="utf-8").partition(start)
    _, end, after = rest.partition(END)
    if begin and end:
        written = f"{before}{start}\n{coverage(page.stem, folder, f'{folder.name}/')}\n{END}{after}"
        with writing(page):
            durable.write(page, written)
    return bool(begin and end)
