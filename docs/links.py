"""Links and headings of Markdown as a forge reads them."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

# Fenced blocks, and spans: as many backticks at the end as at the beginning, within one paragraph.
_CODE = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)\s*$|(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n\s*\n).)*?(?<!`)(?P=ticks)(?!`)",
    re.M | re.S,
)
_FENCES = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.M | re.S)
_TARGET = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
_TOKEN = re.compile(r"</?(?:unk|pad|s|sssss)>")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.M)


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor that a forge gives a heading.

    Args:
        heading: Its text, with or without Markdown.
        separator: What stands for a blank.
    """
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("\\", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", separator)


def anchors(text: str) -> list[str]:
    """Return the anchors of a document: those of its headings, and ``<a id="...">``."""
    prose = _FENCES.sub("", text)
    seen: Counter[str] = Counter()
    found = []
    for heading in _HEADING.findall(prose):
        name = slug(heading)
        found.append(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found + re.findall(r'<a id="([^"]+)"', prose)


def targets(text: str) -> list[str]:
    """Return the targets of a document's links and pictures, without those in code."""
    return _TARGET.findall(_without_code(text))


def replace_targets(text: str, new: Callable[[str], str]) -> str:
    """Return a document whose links lead to ``new(target)``; code stays as it is."""
    return _replaced(text, _TARGET, new)


def escape_tokens(text: str) -> str:
    """Return a document that shows special tokens such as ``<unk>``, which are no HTML; code stays as it is."""
    return _replaced(text, _TOKEN, lambda token: token.replace("<", "&lt;"))


def toc_slug(heading: str, separator: str, **_: Any) -> str:
    """Return ``slug`` under the signature that Python-Markdown's table of contents asks for.

    Args:
        heading: The text of a heading.
        separator: What stands for a blank.
    """
    return slug(heading, separator)


def _replaced(text: str, pattern: re.Pattern[str], new: Callable[[str], str]) -> str:
    """Replace what a pattern matches outside of code."""
    made, end = [], 0
    for match in pattern.finditer(_without_code(text)):
        made += [text[end : match.start()], new(match[0])]
        end = match.end()
    return "".join([*made, text[end:]])


def _without_code(text: str) -> str:
    """Return a text of the same length whose code is blank."""
    return _CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
