"""Where the real corpora are, for tests that need them."""

import os
from pathlib import Path

import pytest

from tests import ROOT


def real_data(file: str) -> Path:
    """The folder that holds ``file``: $FEDTEXT_DATA, else shared/data beside the repository. Skips the test without."""
    named = os.environ.get("FEDTEXT_DATA")
    folder = Path(named).expanduser() if named else ROOT.parent / "shared" / "data"
    if not (folder / file).is_file():
        pytest.skip(f"the real corpus is not here: no {folder / file} (set FEDTEXT_DATA to the folder that has {file})")
    return folder
