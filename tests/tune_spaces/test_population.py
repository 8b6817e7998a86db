"""Population-based training: who continues from whom, with which values, and where it is refused."""

import math
from typing import Any

import pytest

from fedtext.aggregations.centered_clipping import CenteredClipping
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.methods import FedAvg
from tests import tiny
from tests.loops import nonempty
from tune_spaces.cases import cases
from tune_spaces.population import FACTORS, check_population, exploits

SPACE = {
    "training.optimizer.lr": {"loguniform": [0.001, 0.1]},
    "method.lambda1": {"uniform": [0.0, 1.0]},
    "training.local_epochs": {"randint": [1, 5]},
}
POINT = {"training.optimizer.lr": 0.01, "method.lambda1": 0.5, "training.local_epochs": 3}


def population(
    space: Any = SPACE, rounds: int = 6, method: Any = "kteps", tune: Any = None, **changes: Any
) -> Experiment:
    options = {"metric": "Ag", "scheduler": "pbt", "samples": 8, "interval": 2} | (tune or {})
    training = tiny.TRAINING | {"rounds": rounds} | changes.pop("training", {})
    return tiny.experiment(method, space=space, tune=options, training=training, **changes)


def test_the_worst_quarter_continues_from_the_best_quarter() -> None:
    points = {member: POINT | {"method.lambda1": member / 10} for member in range(8)}
    scores = {0: 0.5, 1: 0.9, 2: 0.1, 3: math.nan, 4: 0.7, 5: 0.8, 6: 0.6, 7: 0.4}
    found = exploits(population(), points, scores, 1)
    assert [one.member for one in found] == [2, 3], "a value that is not finite is the worst"
    for one in nonempty(found):
        assert one.donor in (1, 5)
        before, after = points[one.donor], one.point
        assert list(after) == list(SPACE)
        assert any(after["training.optimizer.lr"] == pytest.approx(factor * 0.01) for factor in FACTORS)
        assert any(after["method.lambda1"] == pytest.approx(factor * before["method.lambda1"]) for factor in FACTORS)
        assert after["training.local_epochs"] in (2, 4)
    assert exploits(population(), points, scores, 1) == found
    assert exploits(population(seed=1), points, scores, 1) != found
    assert exploits(population(), points, scores, 2) != found
    least = exploits(population(tune={"metric": "loss"}), points, scores, 1)
    assert [one.member for one in least] == [1, 3]


def test_no_two_members_go_on_as_the_same() -> None:
    """They would stay the same to the bit. Nor does one go on as its donor, whose value a bound keeps."""
    space = {"training.optimizer.lr": {"loguniform": [0.01, 1.0]}}
    scores = dict(enumerate([1.0, 0.9, 0.8, 0.7]))
    points = {member: {"training.optimizer.lr": 0.01} for member in range(4)}
    half = population(space, tune={"quantile": 0.5})
    for generation in range(1, 30):
        found = [(one.donor, one.point["training.optimizer.lr"]) for one in exploits(half, points, scores, generation)]
        assert sorted(found) == [(0, pytest.approx(0.012)), (1, pytest.approx(0.012))]


def test_values_stay_in_the_space() -> None:
    space = {
        "training.optimizer.lr": {"loguniform": [0.001, 0.1]},
        "training.local_epochs": {"randint": [1, 3]},
        "training.optimizer.weight_decay": {"quniform": [0.0, 0.1, 0.05]},
        "method.lambda1": {"choice": [0.0, 0.1, 1.0]},
    }
    top = dict(zip(space, (0.1, 2, 0.1, 1.0), strict=True))
    bottom = dict(zip(space, (0.001, 1, 0.0, 0.0), strict=True))
    scores = dict(enumerate([1.0, 0.9, 0.8, 0.7]))
    seen = []
    for generation in range(1, 30):
        for point in (top, bottom):
            (one,) = exploits(population(space), dict.fromkeys(range(4), point), scores, generation)
            seen.append(one.point)
    for point in nonempty(seen):
        assert 0.001 <= point["training.optimizer.lr"] <= 0.1
        assert point["training.local_epochs"] in (1, 2)
        assert min(abs(point["training.optimizer.weight_decay"] - at) for at in (0.0, 0.05, 0.1)) < 1e-12
        assert point["method.lambda1"] in (0.0, 0.1, 1.0)
    assert {point["method.lambda1"] for point in seen} == {0.0, 0.1, 1.0}


def test_a_population_of_one_or_none_has_no_exploits() -> None:
    assert exploits(population(), {}, {}, 1) == []
    assert exploits(population(), {0: POINT}, {0: 1.0}, 1) == []


EXAMPLES = {
    "method": "fedavg",
    "space": {"training.optimizer.lr": {"loguniform": [0.001, 0.1]}},
    "training": {"dp_sgd": {"clip_norm": 1.0, "multiplier": 1.0}},
}
NOISE = {"uplink": [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.1}}]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"space": {"model.hidden": {"randint": [4, 8]}}},
            "space.model.hidden: .* this one cannot: use one of training.",
        ),
        ({"space": {"method.lambda1": {"grid": [0, 1]}}}, "set tune.samples to 4 or more draws of a space with ranges"),
        ({"space": SPACE | {"method.lambda2": {"grid": [0, 1]}}}, "space.method.lambda2.grid: .* write choice"),
        ({"tune": {"samples": 3}}, "set tune.samples to 4 or more"),
        (
            {"method": "feddyn", "space": {"method.alpha": {"uniform": [0.01, 1]}}},
            "the state that feddyn keeps depends",
        ),
        (NOISE, "the privacy ledger and the noise's key are of one"),
        (EXAMPLES, "the privacy ledger and the noise's key are of one"),
        ({"privacy": {"noise": "secret"}}, "the privacy ledger and the noise's key are of one"),
        ({"rounds": 2}, "leaves no second generation"),
        ({"evaluation": {"every": 3}}, "has to be a multiple of evaluation.every"),
        ({"checkpoint": {"every": 4}}, "has to be a multiple of checkpoint.every"),
        ({"tune": {"metric": "Ap"}}, "Ap is computed after the last round only"),
        ({"seeds": 2}, "leave seeds at 1"),
    ],
)
def test_where_a_run_of_several_experiments_would_mean_nothing(changes: Any, words: str) -> None:
    experiment = population(**changes)
    with pytest.raises(UserError, match=words):
        cases(experiment.model_dump(mode="json"), experiment, "test")


class Clipping(FedAvg):
    """A method whose own aggregation keeps a state."""

    radius: float = 1.0

    @property
    def aggregation(self) -> CenteredClipping:
        return CenteredClipping(radius=self.radius)


def test_a_number_of_an_aggregation_with_a_state_cannot_change() -> None:
    space = {"method.radius": {"uniform": [1.0, 2.0]}}
    described = population({"training.optimizer.lr": {"uniform": [0.1, 1.0]}}, method="fedavg")
    experiment = described.model_copy(update={"method": Clipping(), "space": space})
    with pytest.raises(UserError, match=r"space\.method\.radius: .* the state that fedavg keeps depends on it"):
        check_population(experiment)


def test_a_population_is_drawn_at_random() -> None:
    experiment = population()
    made = cases(experiment.model_dump(mode="json"), experiment, "test")
    assert len({case.overrides["training.optimizer.lr"] for case in made}) == 8
