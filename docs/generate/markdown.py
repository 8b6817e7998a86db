"""Markdown of generated pages."""

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
_CODE = re.compile(r"(``.*?``|`[^`]*`)")


def prose(text: str) -> str:
    """Return a docstring or description as Markdown: code in single backticks, all other characters as they are."""
    parts = _CODE.split(text)
    for place, part in enumerate(parts):
        parts[place] = part.replace("``", "`") if place % 2 else re.sub(r"([*\[])", r"\\\1", part.replace("<", "&lt;"))
    return "".join(parts)


def docstring(cls: type) -> str:
    """Return a class's docstring as Markdown, without sections such as Args."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return prose(re.split(r"\n(?:Args|Attributes|Returns|Raises):\n", text)[0]).strip()


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in line) + " |" for line in lines)


def joined(parts: Iterable[str]) -> str:
    """Join the parts of a page."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def written(text: str, what: str, body: str) -> str:
    """Return a document, the part of it that ``python -m docs`` writes replaced.

    Args:
        text: The document, with a comment before and after that part.
        what: Name of the part, in both comments.
        body: Its new content.
    """
    begin, end = f"<!-- {what}: written by python -m docs -->", f"<!-- end of {what} -->"
    assert 0 <= text.find(begin) < text.find(end), f"a document lacks the comments around {what}"
    return f"{text.partition(begin)[0]}{begin}\n\n{body}\n\n{end}{text.partition(end)[2]}"
