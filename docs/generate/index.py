"""llms.txt: every page of the site with its first sentence, for programs that read documentation."""

import re
from collections.abc import Iterator, Mapping
from typing import Any


def llms(nav: list[Any], about: str, texts: Mapping[str, str]) -> str:
    """Return the content of llms.txt, whose links are relative to the site's root.

    Args:
        nav: The navigation of the site, as in mkdocs.yml.
        about: A sentence on the project.
        texts: The Markdown of each page by its path.
    """
    lines = ["# fedtext", "", f"> {about}"]
    for entry in nav:
        ((title, inside),) = entry.items() if isinstance(entry, dict) else ((None, entry),)
        paths = _paths(inside)
        lines += ["", f"## {title}", "", *(_line(path, texts[path]) for path in paths)]
    return "\n".join(lines) + "\n"


def _paths(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        yield from _paths(list(entry.values()))
    else:
        for each in entry:
            yield from _paths(each)


def _line(path: str, text: str) -> str:
    """Return the line of a page: its title with a link, and its first sentence."""
    title = re.search(r"^# (.*)$", text, re.M)
    paragraphs = [part for part in text.split("\n\n") if re.match(r"[A-Z`\[]", part)]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""
    sentence = re.split(r"(?<=[.:]) (?=[A-Z`])", plain)[0]
    return f"- [{title[1] if title else path}]({path}): {sentence}".removesuffix(": ")
