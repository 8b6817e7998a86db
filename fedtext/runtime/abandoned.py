"""Drafts of files and folders that processes which were killed have left."""

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ABANDONED_S = 86_400.0  # a draft unchanged for that long is abandoned


def remove_abandoned(drafts: Iterable[Path]) -> None:
    """Remove the folders of drafts that have not changed for a day.

    Args:
        drafts: The folders.
    """
    for draft in drafts:
        with suppress(OSError):  # another process removes it too
            last = max(path.stat().st_mtime for path in [draft, *draft.iterdir()])
            if time.time() - last > ABANDONED_S:
                shutil.rmtree(draft)
