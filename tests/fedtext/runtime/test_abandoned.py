"""Drafts of processes that were killed."""

import os
import time
from pathlib import Path

from fedtext.runtime.abandoned import ABANDONED_S, remove_abandoned


def test_drafts_go_a_day_after_their_last_change(tmp_path: Path) -> None:
    before = time.time() - ABANDONED_S - 60
    for name, folder_at, file_at in (("old", before, before), ("new", None, None), ("in use", before, None)):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "part"
        file.write_text("half")
        os.utime(file, file_at and (file_at, file_at))
        os.utime(tmp_path / name, folder_at and (folder_at, folder_at))
    (tmp_path / "file").write_text("no folder")
    remove_abandoned(sorted(tmp_path.iterdir()))
    assert {path.name for path in tmp_path.iterdir()} == {"new", "in use", "file"}
