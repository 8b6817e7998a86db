"""Long runs of many clients, and runs that are killed: what is printed of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import soak
from tests import ROOT
from tests.loops import nonempty


def test_a_small_soak_counts_every_round_and_what_its_checkpoint_takes(tmp_path: Path) -> None:
    rows = soak.soak(12, 4, 6, tmp_path)
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(0 < row["checkpoint wall s"] < row["wall s"] for row in nonempty(rows))
    assert all(0 <= row["checkpoint CPU s"] <= row["CPU s"] for row in nonempty(rows))
    assert min(row["memory MB"] for row in rows) > 20
    assert len(list(tmp_path.glob("round-00000[56]"))) == 2
    assert [row["rounds"] for row in soak.points(rows)] == ["1-1", "2-2", "3-3", "4-4", "5-5", "6-6"]


def test_points_are_means_of_ten_parts_and_trends_say_what_grows() -> None:
    rows = [{"round": n, "flat": 2.0 + 0.001 * (-1) ** n, "grows": 1.0 + n} for n in range(1, 101)]
    parts = soak.points(rows)
    assert [part["rounds"] for part in parts][:2] == ["1-10", "11-20"]
    assert len(parts) == soak.POINTS
    assert parts[1]["grows"] == pytest.approx(16.5)
    flat, grows = soak.trends(rows)
    assert (flat["of"], flat["flat"], grows["of"], grows["flat"]) == ("flat", "yes", "grows", "no")
    assert grows["grows by"] == pytest.approx(97.0)


def test_a_slope_and_its_error_are_those_of_least_squares() -> None:
    """By hand: the points (0, 0), (1, 2), (2, 1) have the line 1/2 + x/2, residuals -1/2, 1, -1/2."""
    steepness, error = soak.slope([0, 1, 2], [0, 2, 1])
    assert steepness == pytest.approx(0.5)
    assert error == pytest.approx((1.5 / 1 / 2) ** 0.5)


@pytest.mark.slow
def test_runs_that_are_killed_end_as_one_that_is_not(tmp_path: Path) -> None:
    words = ["--runs", "2", "--kills", "4", "--rounds", "12", "--json", str(tmp_path / "kills.json")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kills", *words], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "kills.json").read_text())["figures"]
    assert [row["equal"] for row in rows] == ["yes", "yes"]
    assert sum(row["kills"] for row in rows) >= 2
