"""Words of clients in Markdown reports."""


def plain(word: str) -> str:
    """Escape a word so that Markdown shows it literally."""
    return "".join("\\" + c if c in "\\`*_[]<>|" else c for c in word)
