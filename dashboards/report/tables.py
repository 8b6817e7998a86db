"""Tables of a report, as text and as numbers: CSV, LaTeX (booktabs), Markdown and HTML."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboards.trial import one_line
from fedtext.runtime.markdown import plain

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "…": r"\ldots{}",
    "×": r"$\times$",
}
_FORMULA = ("=", "+", "-", "@")
_NUMBER = re.compile(r"-(\d+(\.\d*)?(e[-+]?\d+)?)?")  # or -, which stands for none


@dataclass(frozen=True)
class Field:
    """One cell of a table.

    Args:
        text: The text of the cell.
        numbers: Its numbers at full precision, by the end of their CSV column's name (``""``, ``"sd"``).
        strong: Whether it is marked: the best of its column, or a significant difference.
    """

    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        name: Name of its files.
        caption: A sentence on what it shows.
        heads: Headings of the columns.
        rows: A field for each heading.
        notes: Sentences below it.
    """

    name: str
    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Field]]
    notes: Sequence[str] = ()

    @property
    def texts(self) -> list[bool]:
        """Whether each column has texts alone, which are aligned to the left."""
        return [not any(row[place].numbers for row in self.rows) for place in range(len(self.heads))]


def as_csv(table: Table) -> str:
    """Return a table as CSV, with a column for each number of a field. A heading that several columns have, as ``p``,
    follows that of the column before: programs that read columns by name would find the last of them alone."""
    ends: list[list[str]] = [
        list(dict.fromkeys(end for row in table.rows for end in row[place].numbers)) or ["text"]
        for place in range(len(table.heads))
    ]
    heads = [
        f"{before} {head}" if table.heads.count(head) > 1 else head
        for before, head in zip(["", *table.heads], table.heads, strict=False)
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        _guarded(head if end in ("", "text") else f"{head} {end}")
        for head, every in zip(heads, ends, strict=True)
        for end in every
    )
    for row in table.rows:
        writer.writerow(
            _guarded(one.text) if end == "text" else f"{one.numbers[end]:.12g}" if end in one.numbers else ""
            for one, every in zip(row, ends, strict=True)
            for end in every
        )
    return text.getvalue()


def _guarded(text: str) -> str:
    """Return a text on one line, which no spreadsheet takes for a formula."""
    text = one_line(text)
    return f"'{text}" if text[:1] in _FORMULA and not _NUMBER.fullmatch(text) else text


def latex_escaped(text: str) -> str:
    """Return a text, on one line, as LaTeX prints it."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


def as_latex(table: Table) -> str:
    """Return a table as a LaTeX ``table`` with booktabs."""

    def line(texts: Sequence[str]) -> str:
        # LaTeX reads * and [...] for arguments of the rule or the end of the line before, beyond blanks and line ends
        argument = "{}" * "".join(texts[:1]).startswith(("*", "["))
        return f"    {argument}{' & '.join(texts)} \\\\"

    columns = "".join("l" if text else "r" for text in table.texts)
    marked = [[_latex(one) for one in row] for row in table.rows]
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{latex_escaped(' '.join([table.caption, *table.notes]))}}}",
            f"  \\label{{tab:{re.sub(r'[^A-Za-z0-9]+', '-', table.name)}}}",
            f"  \\begin{{tabular}}{{{columns}}}",
            "    \\toprule",
            line([latex_escaped(head) for head in table.heads]),
            "    \\midrule",
            *map(line, marked),
            "    \\bottomrule",
            "  \\end{tabular}",
            "\\end{table}",
            "",
        ]
    )


def _latex(one: Field) -> str:
    text = latex_escaped(one.text)
    return f"\\textbf{{{text}}}" if one.strong and text else text


def as_markdown(table: Table) -> str:
    """Return a table as Markdown, with its caption above and its notes below."""

    def line(texts: Sequence[str]) -> str:
        return f"| {' | '.join(texts)} |"

    ruler = ["---" if text else "---:" for text in table.texts]
    body = [[_markdown(one) for one in row] for row in table.rows]
    lines = [plain(table.caption), "", line([plain(head) for head in table.heads]), line(ruler)]
    notes = ["", *(f"{plain(note)}  " for note in table.notes)] if table.notes else []
    return "\n".join([*lines, *map(line, body), *notes]) + "\n"


def _markdown(one: Field) -> str:
    text = plain(one.text)
    return f"**{text}**" if one.strong and text else text
