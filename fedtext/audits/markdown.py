"""Words of clients in what people read."""


def plain(word: str) -> str:
    """A word as Markdown shows it literally."""
    return "".join("\\" + c if c in "\\`*_[]<>|" else c for c in word)
