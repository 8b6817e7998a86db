"""``python -m docs``: write the pages of the reference that follow from the code. ``make docs`` runs it first.

``--check`` writes nothing, names the pages that are not what the code gives, and ends with status 1 if there are any.
"""

import sys

from docs.generate import DOCS, pages


def main(check: bool) -> int:
    """Write the pages that have changed, or name them. Returns the exit status."""
    changed = {name: text for name, text in pages().items() if _read(name) != text}
    for name, text in changed.items():
        if not check:
            (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
            (DOCS / name).write_text(text)
        print(f"docs/{name} is not what the code gives: python -m docs writes it" if check else f"docs/{name} written")
    return int(check and bool(changed))


def _read(name: str) -> str:
    file = DOCS / name
    return file.read_text() if file.is_file() else ""


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
