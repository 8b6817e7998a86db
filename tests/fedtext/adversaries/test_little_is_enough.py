"""Attack ``little_is_enough``: how far from the mean adversaries go, and what they send."""

from statistics import NormalDist

import numpy as np
import pytest

from fedtext.adversaries.little_is_enough import LittleIsEnough
from fedtext.layout import TABLE
from fedtext.messages import Update
from tests.loops import nonempty


@pytest.mark.parametrize(("bad", "honest", "z"), [(24, 26, 24 / 26), (2, 14, 7 / 14), (10, 30, 19 / 30)])
def test_the_distance_of_a_little_is_that_of_the_paper(bad: int, honest: int, z: float) -> None:
    assert LittleIsEnough().distance(bad, honest) == pytest.approx(NormalDist().inv_cdf(z))
    assert LittleIsEnough(z=0.3).distance(bad, honest) == 0.3


def test_the_distance_of_a_little_does_not_fall_with_more_adversaries() -> None:
    found = [LittleIsEnough().distance(bad, 16 - bad) for bad in range(1, 17)]
    assert found == sorted(found)
    assert found[8:] == pytest.approx([NormalDist().inv_cdf(31 / 32)] * 8)  # nine of sixteen are a majority


def test_colluding_adversaries_send_the_rows_that_one_of_them_has() -> None:
    state = {TABLE: np.zeros((5, 2), np.float32)}
    held = [np.array([3, 0], np.int32), np.array([3, 1], np.int32)]
    own = [Update(k, 1, {TABLE: np.full((2, 2), k + 1, np.float32)}, rows) for k, rows in enumerate(held)]
    for update in nonempty(LittleIsEnough(z=1.0).choose(own, 3, state)):
        assert update.rows is not None
        assert update.rows.tolist() == [0, 1, 3]
        assert update.tensors[TABLE][:, 0] == pytest.approx([0.0, 0.0, 1.0])  # mean less deviation of 1 0, 0 2 and 1 2
    assert LittleIsEnough().choose(own[:1], 3, state) == own[:1]


def test_colluding_adversaries_send_mean_minus_z_deviations() -> None:
    rng = np.random.default_rng(0)
    state = {TABLE: np.zeros((5, 2), np.float32), "w": np.zeros(3, np.float32)}
    rows = [np.array([0, 3], np.int32), np.array([4, 0, 1], np.int32), None]
    own = []
    for client, held in enumerate(rows):
        count = 5 if held is None else len(held)
        tensors = {TABLE: rng.standard_normal((count, 2)), "w": rng.standard_normal(3)}
        own.append(Update(client, client + 1, {n: t.astype(np.float32) for n, t in tensors.items()}, held))
    dense = np.zeros((3, 5, 2))
    for client, (update, held) in enumerate(zip(own, rows, strict=True)):
        dense[client][slice(None) if held is None else held] = update.tensors[TABLE]
    made = LittleIsEnough(z=1.5).choose(own, 4, state)
    assert [(update.client, update.samples) for update in made] == [(0, 1), (1, 2), (2, 3)]
    for update in nonempty(made):
        assert update.tensors[TABLE] == pytest.approx(dense.mean(0) - 1.5 * dense.std(0), abs=1e-6)
        flat = np.stack([each.tensors["w"] for each in own]).astype(np.float64)
        assert update.tensors["w"] == pytest.approx(flat.mean(0) - 1.5 * flat.std(0), abs=1e-6)
