"""Pages of the reference that are written from the code: keys, parts, metrics, commands, names of the API."""

from docs.generate.markdown import DOCS


def pages() -> dict[str, str]:
    """Return the text of each generated page by its path in ``docs/``."""
    from docs.generate import api, commands, keys, metrics, papers, parts

    made = {"reference/keys.md": keys.experiment(), "reference/metrics.md": metrics.page()}
    made |= keys.parts() | {"reference/commands.md": commands.page()}
    return made | api.pages() | papers.pages() | parts.pages()


__all__ = ["DOCS", "pages"]
