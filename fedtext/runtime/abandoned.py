"""Drafts of files and folders that processes which were killed have left."""

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ABANDONED_S = 86_400.0  # after which nobody works on a draft any more


def remove_abandoned(drafts: Iterable[Path]) -> None:
    """Remove those of some folders of drafts that nobody has changed for a day.

    Args:
        drafts: The folders.
    """
    for draft in drafts:
        with suppress(OSError):  # another process removes it too
            last = max(path.stat().st_mtime for path in [draft, *draft.iterdir()])
            if time.time() - last > ABANDONED_S:
                shutil.rmtree(draft)
