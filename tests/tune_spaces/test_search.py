"""Suggested points: by the number of a point alone, whatever ends first, and the same again after an interruption."""

import builtins
import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from tests import tiny
from tests.loops import nonempty
from tune_spaces.cases import cases, suggested_cases
from tune_spaces.search import INSTALL, Result, Search

SPACE = {
    "training.optimizer.lr": {"loguniform": [1e-4, 1.0]},
    "method.lambda1": {"uniform": [0.0, 1.0]},
    "training.local_epochs": {"randint": [1, 4]},
    "uplink": {"choice": [[], [{"clip": {"norm": 1.0}}]]},
}
PENDING = 3


def searched(space: Any = SPACE, **tune: Any) -> Experiment:
    options = {"search": "tpe", "samples": 24, "startup": 5, "metric": "Ag", "pending": PENDING} | tune
    return tiny.experiment("kteps", space=space, tune=options)


def quality(point: dict[str, Any]) -> float:
    """Best at lr = 0.01 and lambda1 = 0.3, without a clip."""
    distance = (math.log10(point["training.optimizer.lr"]) + 2) ** 2 + 4 * (point["method.lambda1"] - 0.3) ** 2
    return -distance - bool(point["uplink"])


def judged(number: int, point: dict[str, Any]) -> Result:
    """Every seventh point fails, every fifth is stopped after its second round."""
    if number % 7 == 6:
        return Result()
    if number % 5 == 4:
        return Result(rounds=((1, quality(point) - 2), (2, quality(point) - 1)))
    return Result.of([quality(point)])


def go_on(search: Search, order: int, judge: Callable[[int, Any], Result] = judged, until: int | None = None) -> Search:
    """Run a search with trials that end in a random order, until it has suggested so many points."""
    ended = set(search._results)
    draws = random.Random(order)
    while until is None or len(search.points) < until:
        while search.ask() is not None:
            assert len(search.points) <= min(set(range(99)) - ended) + search.experiment.tune.pending
        live = [number for number in range(len(search.points)) if number not in ended]
        if not live:
            break
        number = draws.choice(live)
        ended.add(number)
        search.end(number, judge(number, search.points[number]))
    return search


def test_the_points_do_not_depend_on_which_trial_ends_first() -> None:
    first = go_on(Search(searched()), 0)
    assert len(first.points) == 24
    assert first.left == 0
    for order in (1, 2):
        assert go_on(Search(searched()), order).points == first.points
    for point in nonempty(first.points):
        assert list(point) == list(SPACE)
        assert 1e-4 <= point["training.optimizer.lr"] <= 1
        assert point["training.local_epochs"] in (1, 2, 3)
        assert point["uplink"] in SPACE["uplink"]["choice"]
    assert go_on(Search(searched(pending=1)), 0).points != first.points, "results are used sooner"


def test_results_decide_where_it_goes_on() -> None:
    def best(number: int, point: dict[str, Any]) -> Result:
        return Result.of([quality(point)])

    def worst(number: int, point: dict[str, Any]) -> Result:
        return Result.of([-quality(point)])

    up, down = (go_on(Search(searched(samples=60)), 0, judge).points for judge in (best, worst))
    known = 5 + PENDING - 1  # before these the results of the random points are not all known
    assert up[:5] == down[:5]
    assert up[known:] != down[known:]
    late = slice(30, None)
    assert sum(map(quality, up[late])) / 30 > sum(map(quality, down[late])) / 30 + 1


def test_an_interrupted_search_goes_on_with_the_same_points() -> None:
    whole = go_on(Search(searched()), 0)
    for until in (1, 4, 11, 24):
        begun = go_on(Search(searched()), 3, until=until)
        again = Search(searched())
        again.restore(json.loads(json.dumps(begun.log())))
        assert again.points == begun.points
        assert go_on(again, 5).points == whole.points
    longer = Search(searched(samples=30))
    longer.restore(whole.log())
    assert go_on(longer, 1).points[:24] == whole.points
    assert len(longer.points) == 30


def test_the_first_result_of_a_point_counts() -> None:
    """A failed trial may have run again by the time of a resume, and its failure have been told."""
    one, other = Search(searched()), Search(searched())
    for search in (one, other):
        while search.ask() is not None:
            pass
        search.end(0, Result.of([1.0]))
    other.end(0, Result())
    assert go_on(one, 0).points == go_on(other, 0).points


def test_a_log_of_other_points_is_refused() -> None:
    log = go_on(Search(searched()), 0, until=8).log()
    log["points"][6]["method.lambda1"] += 0.1
    with pytest.raises(UserError, match=r"suggests other points than .* with which this sweep was begun: install that"):
        Search(searched()).restore(log)


def test_several_objectives_pull_the_points_to_their_front() -> None:
    def cost(point: dict[str, Any]) -> float:
        return float(point["training.local_epochs"])

    def both(number: int, point: dict[str, Any]) -> Result:
        return Result.of([quality(point), cost(point)])

    experiment = searched(metrics=["Ag", "bytes_total"], samples=60)
    points = go_on(Search(experiment), 0, both).points
    assert points == go_on(Search(experiment), 1, both).points
    early, late = points[:10], points[-20:]
    assert sum(map(quality, late)) / 20 > sum(map(quality, early)) / 10
    assert sum(map(cost, late)) / 20 < 2, "fewer epochs are cheaper"


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_value_that_is_not_finite_is_a_failure(value: float | None) -> None:
    assert Result.of([1.0, value]) == Result()


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({}, "tpe needs a space"),
        ({"method.lambda1": {"grid": [0, 1]}}, "space.method.lambda1.grid: all values of a grid are run"),
        ({"method.lambda1": {"loguniform": [0, 1]}}, r"lambda1.loguniform: \[0, 1\] cannot be drawn from: both"),
        ({"storage": {"choice": ["a"]}}, "only what is computed can be swept"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(space: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Search(searched(space))


def test_bounds_that_no_experiment_can_have_are_refused_before_anything_runs() -> None:
    experiment = searched({"method.lambda1": {"uniform": [-1.0, 1.0]}})
    with pytest.raises(UserError, match="greater than or equal to 0"):
        cases(experiment.model_dump(mode="json"), experiment, "test")


def test_a_suggested_point_that_is_no_experiment_is_a_case_with_a_problem() -> None:
    experiment = searched()
    content = experiment.model_dump(mode="json")
    point = {"method.lambda1": -1.0}
    (bad,) = suggested_cases(content, experiment, "test", 4, point)
    assert (bad.id, bad.label, bad.overrides) == ("004-kteps", "lambda1=-1", point)
    assert "greater than or equal to 0" in bad.problem
    (good,) = suggested_cases(content, experiment, "test", 5, {"method.lambda1": 0.5})
    assert (good.id, good.problem) == ("005-kteps", "")
    assert good.experiment.method.lambda1 == 0.5  # type: ignore[attr-defined]


def test_without_optuna_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **how: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *args, **how)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match=r"pip install 'fedtext\[search\]'") as refused:
        Search(searched())
    assert str(refused.value) == INSTALL
