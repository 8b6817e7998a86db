"""Which sweeps can go on with more rounds or points."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from sweeps.extension import OTHERWISE, check_longer, not_extended
from sweeps.folder import RunFolder
from sweeps.points import LOG
from sweeps.search_log import begun_search
from tests import tiny
from tune_spaces.cases import cases
from tune_spaces.search import Result, Search

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
    (tmp_path / LOG).write_text(json.dumps({"points": [{}] * 4, "optuna": "1", "told": []}))
    found = not_extended(begun, asked, changed, tmp_path)
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_search_that_has_points_left_is_ended_first(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text(json.dumps({"points": [{}] * 3}))
    found = not_extended(made(), made(3), ["training.rounds"], tmp_path)
    assert found.startswith("rounds: its search")
    assert " 1 points" in found


@pytest.mark.parametrize(("rounds", "expected"), [(2, ""), (1, "points: its search knows results of 1 rounds")])
def test_a_search_knows_results_of_one_number_of_rounds(rounds: int, expected: str, tmp_path: Path) -> None:
    log = {"points": [{}] * 4, "optuna": "1", "told": [{"values": [1.0], "rounds": []}], "rounds": rounds}
    (tmp_path / LOG).write_text(json.dumps(log))
    found = not_extended(made(), made(tune=TPE | {"samples": 5}), ["tune.samples"], tmp_path)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
    (tmp_path / LOG).write_text(json.dumps(log | {"told": []}))
    assert not_extended(made(), made(tune=TPE | {"samples": 5}), ["tune.samples"], tmp_path) == ""


def test_the_log_of_a_search_has_the_rounds_of_what_it_was_told() -> None:
    search = Search(made(tune=TPE | {"startup": 1, "pending": 1}))
    assert search.ask() is not None
    search.end(0, Result((0.5,)))
    assert search.ask() is not None
    again = Search(made(3, tune=TPE | {"startup": 1, "pending": 1}))
    again.restore(search.log())
    assert (search.log()["rounds"], again.log()["rounds"]) == (2, 2)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"training": tiny.TRAINING | {"rounds": 3}}, "its trial 00-fedprox has a number of its own"),
        ({"evaluation": {"select": "Ag_val", "personalize": None}}, "evaluation.select has had"),
        ({"method.mu": 0.1}, ""),
    ],
)
def test_a_space_of_whole_sections_is_looked_into(values: dict[str, Any], expected: str) -> None:
    tune = {"metric": "Ag_val"}
    swept = tiny.experiment(
        "fedprox", space={"chosen": {"grid": {"this": values}}}, tune=tune, corpus={"name": "demo", "validation": 0.2}
    )
    found = cases(swept.model_dump(mode="json"), swept, "x")
    if not expected:
        check_longer(found, "first", 2)
        return
    with pytest.raises(UserError, match=rf"first cannot have more rounds: {expected}.*; start a new run"):
        check_longer(found, "first", 2)


def test_a_log_without_rounds_is_of_those_that_the_run_was_begun_with(tmp_path: Path) -> None:
    """Earlier versions did not write them."""
    asked = TPE | {"startup": 1, "pending": 1}
    begun, longer = made(2, tune=asked), made(3, tune=asked)
    search = Search(begun)
    search.ask()
    search.end(0, Result((0.5,)))
    search.ask()
    folder = RunFolder(tmp_path / "run")
    folder.create(begun.model_dump(mode="json"), begun, "sweep", None)
    log = search.log()
    del log["rounds"]
    (folder.path / LOG).write_text(json.dumps(log))
    found = begun_search(longer.model_dump(mode="json"), longer, "x", None, folder)
    assert found is not None
    assert found.search.log()["rounds"] == 2
