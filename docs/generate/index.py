"""llms.txt: every page of the site with its first sentence, for programs that read documentation."""

import re
from collections.abc import Iterator
from typing import Any

from docs.generate.markdown import DOCS


def llms(nav: list[Any], about: str) -> str:
    """Return the content of llms.txt, whose links are relative to the site's root.

    Args:
        nav: The navigation of the site, as in mkdocs.yml.
        about: A sentence on the project.
    """
    lines = ["# fedtext", "", f"> {about}"]
    for entry in nav:
        ((title, inside),) = entry.items() if isinstance(entry, dict) else ((None, entry),)
        paths = _paths(inside)
        lines += ["", f"## {title}", "", *filter(None, map(_line, paths))]
    return "\n".join(lines) + "\n"


def _paths(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        yield from _paths(list(entry.values()))
    else:
        for each in entry:
            yield from _paths(each)


def _line(path: str) -> str:
    """Return the line of a page; empty for one that has no Markdown of its own."""
    if not (DOCS / path).is_file():
        return ""
    text = (DOCS / path).read_text()
    title = re.search(r"^# (.*)$", text, re.M)
    paragraphs = [part for part in text.split("\n\n") if re.match(r"[A-Z`\[]", part)]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""
    sentence = re.split(r"(?<=[.:]) (?=[A-Z`])", plain)[0]
    return f"- [{title[1] if title else path}]({path}): {sentence}"
