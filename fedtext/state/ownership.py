"""What a local folder knows of its copy at a URI: the URI, and the owners as which this machine worked on the run."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedtext.runtime import durable

STATE = ".copy.json"


def record(folder: Path, uri: str, token: str, before: Iterable[str] = ()) -> None:
    """Write the URI and the owner to a local folder.

    Args:
        folder: The folder of the run.
        uri: Where its copy is.
        token: Identifies the owner; empty: this machine is none.
        before: Tokens of this machine that the copy may still name as its owner's.
    """
    durable.make_folder(folder)
    content = {"uri": uri, "token": token, "before": list(before)}
    durable.write(folder / STATE, json.dumps(content))


def kept(folder: Path) -> dict[str, Any] | None:
    """Return what ``record`` wrote to a local folder; None if it did not."""
    state = folder / STATE
    return json.loads(state.read_text(encoding="utf-8")) if state.is_file() else None


def tokens(folder: Path) -> list[str]:
    """Return the tokens of the owners as which this machine worked on what a local folder has."""
    found = kept(folder) or {"token": ""}
    return [token for token in (*found.get("before", ()), found["token"]) if token]
