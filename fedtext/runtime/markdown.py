"""Texts of others in Markdown: names of clients, words, values of keys, commands."""

import html
import re

_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")


def plain(text: str) -> str:
    """Escape a text so that Markdown shows it literally, on one line, whatever it contains."""
    return _SPECIAL.sub(r"\\\1", html.escape(_line(text), quote=False))


def unescaped(text: str) -> str:
    """Return the text of a line in which all but emphasis is ``plain``."""
    return html.unescape(re.sub(r"\\(.)", r"\1", text.replace("**", "")))


def code(text: str) -> str:
    """Return a text as code in a line of Markdown, whatever it contains."""
    line = _line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    around = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{around}{line}{around}{fence}"


def _line(text: str) -> str:
    return "".join(c for c in " ".join(text.split()) if c.isprintable())
