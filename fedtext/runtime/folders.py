"""The folders of data files and of the cache."""

import os
from pathlib import Path

from fedtext.errors import UserError, option


def cache_folder() -> Path:
    """Return the folder of downloaded and computed files: $FEDTEXT_CACHE, else the user's cache folder."""
    return Path(os.environ.get("FEDTEXT_CACHE") or Path.home() / ".cache" / "fedtext").expanduser()


def check_folder(data: Path | None) -> None:
    """Raise UserError if the folder that is given for data files does not exist."""
    if data is not None and not data.is_dir():
        raise UserError(f"{option('data')}: there is no folder {data}")


def folders(data: Path | None) -> list[Path]:
    """Return the folders of data files: the one given with --data, else $FEDTEXT_DATA and the cache."""
    if data is not None:
        return [data]
    named = os.environ.get("FEDTEXT_DATA")
    return [*([Path(named).expanduser()] if named else []), cache_folder()]
