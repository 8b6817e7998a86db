"""Which sweeps can go on with more rounds or points."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedtext.config.experiment import Experiment
from sweeps.extension import OTHERWISE, not_extended
from sweeps.points import LOG
from tests import tiny

TPE = {"search": "tpe", "metric": "Ag", "samples": 4}
SPACE = {"method.lambda1": {"uniform": [0, 1]}}


def made(rounds: int = 2, tune: Any = TPE, **changes: Any) -> Experiment:
    training = tiny.TRAINING | {"rounds": rounds}
    return tiny.experiment("kteps", space=SPACE, tune=tune, training=training, **changes)


@pytest.mark.parametrize(
    ("begun", "asked", "changed", "expected"),
    [
        (made(), made(3), ["training.rounds"], ""),
        (made(3), made(2), ["training.rounds"], OTHERWISE),
        (made(), made(tune=TPE | {"samples": 5}), ["tune.samples"], ""),
        (made(), made(tune=TPE | {"samples": 3}), ["tune.samples"], OTHERWISE),
        (made(tune={"metric": "Ag"}), made(tune={"metric": "Ag", "samples": 3}), ["tune.samples"], OTHERWISE),
        (made(), made(3, seed=1), ["training.rounds", "seed"], OTHERWISE),
        *(
            (
                made(tune=stops),
                made(3, tune=stops),
                ["training.rounds"],
                f"scheduler: {stops['scheduler']} has compared",
            )
            for stops in ({"metric": "loss", "scheduler": name} for name in ("asha", "median", "pbt"))
        ),
    ],
)
def test_what_can_go_on(
    begun: Experiment, asked: Experiment, changed: list[str], expected: str, tmp_path: Path
) -> None:
    (tmp_path / LOG).write_text(json.dumps({"points": [{}] * 4}))
    found = not_extended(begun, asked, changed, tmp_path)
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_search_that_has_points_left_is_ended_first(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text(json.dumps({"points": [{}] * 3}))
    found = not_extended(made(), made(3), ["training.rounds"], tmp_path)
    assert found.startswith("rounds: its search")
    assert " 1 points" in found
