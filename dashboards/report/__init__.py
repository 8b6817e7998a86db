"""The report of a run or sweep: a page with plots, and tables for papers, made from the records in the run's folder."""

from pathlib import Path

from dashboards.report.collect import Sweep
from dashboards.report.contents import tables
from dashboards.report.front import front
from dashboards.report.page import page
from dashboards.report.tables import as_csv, as_latex, as_markdown
from fedtext.errors import writing

__all__ = ["FOLDER", "Sweep", "write"]

FOLDER, PAGE, TABLES = "report", "report.html", "tables"


def write(sweep: Sweep, folder: Path) -> list[Path]:
    """Write a report.

    Args:
        sweep: Its content.
        folder: The folder in which the folder ``report`` is made, or written again.

    Returns:
        The files; the page is the first one.

    Raises:
        UserError: They cannot be written.
    """
    out = folder / FOLDER / TABLES
    texts: dict[str, str] = {}
    pareto = front(sweep)
    for table in [*tables(sweep), *([pareto] if pareto else [])]:
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in table.name)
        texts |= {f"{name}.csv": as_csv(table), f"{name}.tex": as_latex(table), f"{name}.md": as_markdown(table)}
    content = page(sweep)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for old in {path for path in out.iterdir() if path.suffix in (".csv", ".tex", ".md")}:
            if old.name not in texts:
                old.unlink()  # of an earlier report, whose sweep had other columns
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8", errors="replace")
        (folder / FOLDER / PAGE).write_text(content, encoding="utf-8", errors="replace")
    return [folder / FOLDER / PAGE, *(out / name for name in texts)]
