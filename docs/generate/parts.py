"""Parts of pages that are written elsewhere already: metrics of the code, and the first sweep of the tutorial."""

import re

from actors.metrics import EXPORTED
from docs.generate import tutorial
from docs.generate.markdown import DOCS, table, written

MONITORING, README = "how-to/monitor-a-cluster.md", "../README.md"
LEFT_OUT = ("AUC_val", "loss", "s/round", "rounds", "status")  # columns that the README has no room for
NAMES = ("#", "trial", "method")


def pages() -> dict[str, str]:
    """Return the pages with such parts, by path in ``docs/``."""
    metrics = [(f"`{exported.series}`", exported.description) for exported in EXPORTED.values()]
    cells = first_sweep()
    readme = written((DOCS / README).read_text(), "the first sweep", aligned(cells))
    return {
        MONITORING: written((DOCS / MONITORING).read_text(), "metrics", table(("in Prometheus", "meaning"), metrics)),
        README: re.sub(r'(?<=metrics\["Ap"\]  # ).*', fedavg(cells), readme),
    }


def first_sweep() -> list[list[str]]:
    """Return the table of the tutorial's first sweep without ``LEFT_OUT``: its head, and a row for each trial."""
    printed = next(block for block in tutorial.blocks(tutorial.STEPS[0]) if block.command).text.splitlines()
    rows = [re.split(r"\s{2,}", line) for line in printed if re.match(r"#|\d+ ", line)]
    kept = [place for place, head in enumerate(rows[0]) if head not in LEFT_OUT]
    return [[row[place] for place in kept] for row in rows]


def aligned(cells: list[list[str]]) -> str:
    """Return a table as a block of code, names to the left and numbers to the right."""
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        [
            cell.ljust(width) if head in NAMES else cell.rjust(width)
            for cell, width, head in zip(row, wide, cells[0], strict=True)
        ]
        for row in cells
    ]
    return "\n".join(f"    {'  '.join(line)}" for line in lines)


def fedavg(cells: list[list[str]]) -> str:
    """Return Ag and Ap of FedAvg as fractions, as ``fedtext.run`` gives them."""
    row = next(row for row in cells if "fedavg" in row)
    return ", ".join(f"{float(row[cells[0].index(metric)]) / 100:.3f}" for metric in ("Ag", "Ap"))
