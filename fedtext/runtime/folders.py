"""Where files are looked for, and where what was computed once is kept."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$FEDTEXT_CACHE, else the user's cache folder: what was made here once and need not be made again."""
    return Path(os.environ.get("FEDTEXT_CACHE") or Path.home() / ".cache" / "fedtext").expanduser()


def folders(data: Path | None) -> list[Path]:
    """Where a corpus's files are looked for: in the folder given with --data, else in $FEDTEXT_DATA and the cache."""
    if data is not None:
        return [data]
    named = os.environ.get("FEDTEXT_DATA")
    return [*([Path(named).expanduser()] if named else []), cache_folder()]
