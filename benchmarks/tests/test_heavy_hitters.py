"""The benchmark of private vocabularies."""

import numpy as np
import pytest

from benchmarks import heavy_hitters
from tests.loops import nonempty


def test_a_row_for_each_way_of_release_and_epsilon() -> None:
    rows = list(heavy_hitters.measured(3000, [4.0, 8.0], 1e-5, 0))
    assert [(row["release"], row["epsilon"]) for row in rows] == [
        *(("triehh", 4.0), ("noisy_sums", 4.0)),
        *(("triehh", 8.0), ("noisy_sums", 8.0)),
    ]
    assert all(0 <= row["F1"] <= 1 for row in nonempty(rows))
    assert rows[3]["released"] > rows[1]["released"] > 50
    assert len(list(heavy_hitters.means(rows))) == 4


def test_a_user_adds_one_over_the_root_of_its_different_words() -> None:
    words_UE = np.zeros((2, heavy_hitters.EACH), np.int32)
    words_UE[1, ::2] = 3
    found = heavy_hitters.sums(words_UE)
    assert found[0] == pytest.approx(1 + 0.5**0.5)
    assert found[3] == pytest.approx(0.5**0.5)
    assert np.count_nonzero(found) == 2
