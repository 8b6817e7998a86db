"""Fixtures that tests of the benchmarks share."""

from pathlib import Path

import pytest

from benchmarks.tests.tables import REVIEWS, save


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """IMDB in small: 40 reviews of the train split, the negative ones first, some of the test split before them."""
    rows = [{"split": "test", "label": 1, "text": "never"}] * 3
    rows += [{"split": "train", "label": int(at >= 20), "text": REVIEWS[at % 4]} for at in range(40)]
    save(tmp_path, "imdb", rows)
    return tmp_path
