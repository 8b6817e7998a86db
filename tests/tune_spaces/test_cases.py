"""The cases of a sweep: spaces, seeds, baselines, and what is refused before anything runs."""

from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.search.variant_generator import generate_variants

from fedtext.config.files import SPACES, find, load, validate
from fedtext.errors import UserError
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.loops import nonempty
from tune_spaces.cases import cases
from tune_spaces.search import first_points
from tune_spaces.space import points


@pytest.mark.parametrize("file", sorted(path.name for path in SPACES.glob("*.yaml")))
def test_every_file_in_tune_spaces_gives_valid_cases(file: str) -> None:
    content, experiment = load(file)
    made = cases(content, experiment, file, first_points(experiment))
    assert len({case.id for case in made}) == len(made) >= 4
    assert [case.experiment.method.name for case in made if case.baseline] == [m.name for m in experiment.baselines]


@pytest.mark.parametrize("file", sorted(path.name for path in SPACES.glob("*.yaml")))
def test_every_file_in_tune_spaces_is_found_by_its_name_and_stands_in_the_readme(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SPACES.parent)
    for name in (file, file.removesuffix(".yaml"), f"tune_spaces/{file}"):
        assert find(name).resolve() == SPACES / file
    assert f"`{file}`" in Path("README.md").read_text()


def test_a_space_that_is_all_grid_has_tunes_order() -> None:
    space = {
        "method.lambda2": {"grid": [0.1, 0.2]},
        "method.lambda1": {"grid": [0.1, 0.2, 0.3]},
        "training.optimizer": {"grid": ["sgd", {"name": "adam", "lr": 0.1}]},
        "seed": {"grid": [0, 1]},
    }
    theirs = generate_variants({key.replace(".", "/"): tune.grid_search(spec["grid"]) for key, spec in space.items()})
    expected = [[(key.replace("/", "."), value) for key, value in variant.items()] for _, variant in theirs]
    assert [list(point.items()) for point in points(tiny.experiment("kteps", space=space))] == expected


def test_a_grid_is_complete_and_random_dimensions_follow_the_seed() -> None:
    space = {
        "method.lambda1": {"grid": [0, 0.1]},
        "training.optimizer.lr": {"loguniform": [0.001, 1]},
        "seed": {"grid": [0, 1]},
    }
    experiment = tiny.experiment("kteps", space=space, tune={"samples": 3, "metric": "Ag"})
    drawn = list(points(experiment))
    assert len(drawn) == 2 * 2 * 3
    assert drawn == list(points(experiment))
    assert drawn != list(points(tiny.experiment("kteps", space=space, tune={"samples": 3}, seed=1)))
    rates = {point["training.optimizer.lr"] for point in drawn}
    assert len(rates) > 3
    assert all(nonempty(0.001 <= rate <= 1 for rate in rates))
    content = experiment.model_dump(mode="json")
    made = cases(content, experiment, "test")
    assert made[0].experiment.space == {}
    assert {case.experiment.method.lambda1 for case in made} == {0, 0.1}  # type: ignore[attr-defined]


def test_numbers_that_yaml_takes_for_texts_are_numbers_in_a_space() -> None:
    grid = {"training.optimizer.lr": {"grid": ["1e-5", 0.1]}, "model.name": {"grid": ["lstm"]}}
    one = tiny.experiment(space=grid, tune={"metric": "Ag"})
    made = cases(one.model_dump(mode="json"), one, "test")
    assert [case.overrides["training.optimizer.lr"] for case in made] == [1e-5, 0.1]
    assert [case.label for case in made] == ["lr=1e-05 name=lstm", "lr=0.1 name=lstm"]
    drawn = tiny.experiment(space={"training.optimizer.lr": {"loguniform": ["1e-5", "1E-1"]}}, tune={"samples": 3})
    rates = [point["training.optimizer.lr"] for point in points(drawn)]
    assert all(nonempty(1e-5 <= rate <= 0.1 for rate in rates))
    named = {
        "mechanism": {"grid": {"local": {"uplink": [{"clip": {"norm": "1e-1"}}], "training.optimizer.lr": "1e-3"}}}
    }
    (local,) = cases(one.model_dump(mode="json"), tiny.experiment(space=named), "test")[-1:]
    settings = {"uplink": [{"clip": {"norm": 0.1}}], "training.optimizer.lr": 0.001}
    assert tiny.experiment(space=named).space["mechanism"]["grid"]["local"] == settings
    assert local.experiment.training.optimizer.lr == 0.001


def test_baselines_are_without_what_only_updates_or_two_branches_have() -> None:
    also = [{"inference": "private"}, {"lr_multiplier": 0.5, "inference": "shared"}, {"lr_multiplier": 0.5}]
    one = tiny.experiment(
        "kteps",
        uplink=["clip"],
        wire={"rows": "own"},
        server={"weights": "uniform", "optimizer": "adam", "absent_rows": "holders_only"},
        evaluation={"personalize": {"steps": 2, "inference": "shared", "also": also}},
        baselines=["local_only", "fedevocab", "pooled", "ditto"],
        tune={"metric": "Ap"},
    )
    made = {case.experiment.method.name: case.experiment for case in cases(one.model_dump(mode="json"), one, "test")}
    parts = {name: (len(each.uplink), each.server.weights, each.server.optimizer.name) for name, each in made.items()}
    sent = (1, "uniform", "adam")
    silent = (0, "samples", "sgd")
    assert parts == {"local_only": silent, "fedevocab": sent, "pooled": silent, "ditto": sent, "kteps": sent}
    rows = {name: each.server.absent_rows for name, each in made.items()}
    kept = {"ditto", "kteps"}
    assert rows == {name: "holders_only" if name in kept else "unchanged" for name in made}
    assert {name: each.wire.rows for name, each in made.items()} == {
        name: "own" if name in kept else "auto" for name in made
    }
    asked = {name: each.evaluation.personalize for name, each in made.items()}
    for name in nonempty(made):
        found = asked[name]
        assert found is not None
        branches = ("shared", 3) if name in ("kteps", "ditto") else ("both", 1)
        assert (found.inference, len(found.also)) == branches, name


JOINT: dict[str, dict[str, Any]] = {
    "none": {"uplink": []},
    "local": {"uplink": [{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": 0.1}}], "training.optimizer.lr": 0.5},
}


def test_a_name_stands_for_several_keys_in_a_grid_and_in_a_choice() -> None:
    space: dict[str, Any] = {"method.lambda1": {"grid": [0.0, 0.1]}, "noise": {"grid": JOINT}}
    experiment = tiny.experiment("kteps", space=space, tune={"metric": "Ag"})
    made = cases(experiment.model_dump(mode="json"), experiment, "test")
    found = [
        (*case.overrides.values(), len(case.experiment.uplink), case.experiment.training.optimizer.lr) for case in made
    ]
    lr = experiment.training.optimizer.lr
    assert found == [(0.0, "none", 0, lr), (0.1, "none", 0, lr), (0.0, "local", 2, 0.5), (0.1, "local", 2, 0.5)]
    assert [case.label for case in made] == [f"lambda1={one} noise={two}" for two in JOINT for one in ("0", "0.1")]
    drawn = {"method.lambda1": {"uniform": [0, 1]}, "noise": {"choice": JOINT}}
    for search in ("random", "tpe"):
        tune = {"metric": "Ag", "samples": 12, "search": search, **({"pending": 12} if search == "tpe" else {})}
        one = tiny.experiment("kteps", space=drawn, tune=tune)
        suggested = first_points(one)
        made = cases(one.model_dump(mode="json"), one, "test", suggested)
        assert {(case.overrides["noise"], len(case.experiment.uplink)) for case in made} == {("none", 0), ("local", 2)}


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"method.lambda1": {"gird": [1]}}, "write one of grid, choice"),
        ({"method.lambda1": {"uniform": [1]}}, "needs 2 numbers"),
        ({"method.lambda1": {"uniform": [False, 1]}}, r"needs 2 numbers, not \[False, 1\]"),
        ({"method.lambda1": {"grid": [0.5, True]}}, "method.lambda1: should be a valid number, but here it is True"),
        ({"method.lambda1": {"grid": 1}}, "needs a list"),
        ({"method.lambda1": {"loguniform": [-1, 1]}}, "space.method.lambda1.loguniform"),
        ({"method.lamda1": {"grid": [1]}}, "there is no key method.lamda1; did you mean lambda1"),
        ({"method.lambda1": {"grid": [-1]}}, "greater than or equal to 0"),
        ({"training": {"grid": [1]}}, "training must have keys and values, but here it is 1"),
        ({"storage": {"grid": ["a", "b"]}}, "only what is computed can be swept"),
        ({"method.lambda1": {"randint": [8, 2]}}, "cannot be drawn from"),
        ({"method.lambda1": {"randint": [1.5, 4.5]}}, "needs whole numbers, not"),
        ({"method.lambda1": {"quniform": [0, 1, 0]}}, "needs a step above 0, not 0"),
        ({"method.lambda1": {"quniform": [0, 1, -0.1]}}, "needs a step above 0, not -0.1"),
        ({"method.lambda1": {"uniform": [3, 1]}}, "cannot be drawn from"),
        ({"server": {"grid": {"a": {}}}}, "space.server.grid has names, .* no section"),
        ({"a.b": {"choice": {"a": {}}}}, "space.a.b.choice has names"),
        ({"a": {"uniform": {"a": {}, "b": {}}}}, "needs a list of values"),
        ({"a": {"grid": {}}}, "needs a list of values"),
        ({"a": {"grid": {"b": [1]}}}, "space.a.grid.b needs a text as its name, and keys"),
        ({"a": {"grid": {1: {"seed": 1}}}}, "space.a.grid.1 needs a text as its name"),
        ({"a": {"grid": {"b": {"storage": "c"}}}}, "space.a, storage: only what is computed can be swept"),
        ({"a": {"grid": {"b": {"uplnk": []}}}}, "only what is computed can be swept"),
        (
            {"a": {"grid": {"b": {"method.lambda1": 1}}}, "method": {"grid": ["fedavg"]}},
            "space.a sets method.lambda1, and space.method sets method: leave one of them out",
        ),
        (
            {"method.lambda1": {"grid": [0, 1]}, "method": {"grid": ["kteps"]}},
            "space.method.lambda1 has no effect, since method after it replaces the section: put method first",
        ),
        ({"a": {"grid": {"b": {"training.rounds": 0}}}}, "space {'a': 'b'}: training.rounds: should be"),
        ({f"method.lambda{n}": {"grid": [0.1] * 1000} for n in (1, 2)}, "^space: 1,000,000 trials, and at most 10,000"),
    ],
)
def test_a_space_that_cannot_be_is_refused_before_anything_runs(space: Any, words: str) -> None:
    experiment = tiny.experiment("kteps", space=space, tune={"metric": "Ag"})
    with pytest.raises(UserError, match=words):
        cases(experiment.model_dump(mode="json"), experiment, "test")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tune": {"metric": "Ap_val"}}, "set it, to 0.1 for example, or sort by Ap"),
        ({"tune": {"metric": "Ap", "scheduler": "asha"}}, "set tune.metric to Ag or loss"),
        ({"tune": {"metric": "Ag", "samples": 3}}, "this space is all grid"),
        ({"tune": {"metric": "Ag", "scheduler": "asha", "grace_rounds": 9}}, "nothing to stop"),
        ({"tune": {"metric": "Ag", "scheduler": "asha"}, "evaluation": {"every": 2}}, "set evaluation.every to 1"),
        ({"tune": {"metric": "Ap"}, "evaluation": {"personalize": None}}, "needs evaluation.personalize"),
    ],
)
def test_a_metric_that_no_trial_would_have_is_refused(changes: Any, words: str) -> None:
    experiment = tiny.experiment("kteps", space={"seed": {"grid": [0, 1]}}, **changes)
    with pytest.raises(UserError, match=words):
        cases(experiment.model_dump(mode="json"), experiment, "test")


def test_the_pooled_baseline_of_a_noisy_sweep_is_neither_noised_nor_thinned_out() -> None:
    noisy = {"uplink": [{"gaussian": {"sigma": 1.0}}], "participation": {"fraction": 0.5}}
    experiment = tiny.experiment("kteps", baselines=["fedavg", "pooled"], tune={"metric": "Ag"}, **noisy)
    fedavg, pooled, kteps = (case.experiment for case in cases(experiment.model_dump(mode="json"), experiment, "test"))
    assert pooled.uplink == ()
    assert pooled.participation.fraction == 1
    assert fedavg.uplink == kteps.uplink == experiment.uplink
    with pytest.raises(ValueError, match="leave out uplink, audits and participation"):
        tiny.experiment("pooled", **noisy)


@pytest.mark.parametrize(
    "updates",
    [
        {"server": {"buffer": {"size": 1}}, "participation": {"fraction": 0.5, "pace": {}}},
        {"server": {"secure_aggregation": {}}},
        {
            "server": {"noise": {"multiplier": 1.0, "delta": 1e-5}, "weights": "uniform"},
            "uplink": [{"clip": {"norm": 1.0}}],
            "privacy": {"canaries": {"clients": 50}},
            "wire": {"rows": "all"},
        },
    ],
)
def test_baselines_that_send_no_updates_have_nothing_that_is_about_them(updates: dict[str, Any]) -> None:
    experiment = tiny.experiment("fedavg", baselines=["local_only", "pooled"], tune={"metric": "Ag"}, **updates)
    for case in nonempty(cases(experiment.model_dump(mode="json"), experiment, "test")[:2]):
        assert case.baseline
        server = case.experiment.server
        assert (server.buffer, server.secure_aggregation, case.experiment.privacy.canaries) == (None, None, None)


def test_seeds_repeat_every_case_and_leave_all_else_alone() -> None:
    experiment = tiny.experiment(
        "kteps",
        seed=7,
        seeds=3,
        baselines=["fedavg"],
        space={"method.lambda1": {"grid": [0.0, 0.1]}},
        tune={"metric": "Ag"},
    )
    made = cases(experiment.model_dump(mode="json"), experiment, "test")
    assert [case.id for case in made[:4]] == ["00-fedavg-seed7", "00-fedavg-seed8", "00-fedavg-seed9", "01-kteps-seed7"]
    assert [case.group for case in made] == [*["00-fedavg"] * 3, *["01-kteps"] * 3, *["02-kteps"] * 3]
    assert {case.experiment.seed for case in made} == {7, 8, 9}
    assert len({case.experiment.model_copy(update={"seed": 0}).model_dump_json() for case in made}) == 3


def test_baselines_of_clients_with_unequal_ranks_have_what_they_need() -> None:
    """local_only trains each client's own rank; pooled one model of the largest."""
    lora = {"rank": 4, "ranks": {1: 0.5, 4: 0.5}}
    content = {
        "name": "ranks",
        "corpus": {"name": "demo", "max_length": 12, "validation": 0.2},
        "model": SCRATCH | {"adapter": {"lora": lora}},
        "method": "fedavg",
        "server": {"aggregation": {"lora": {"factors": "svd"}}},
        "training": {"rounds": 1},
        "evaluation": {"personalize": None},
        "baselines": ["local_only", "pooled"],
        "tune": {"metric": "Ag_val"},
    }
    made = cases(content, validate(content), "ranks.yaml")
    found = {case.experiment.method.name: case.experiment.model.adapter.lora for case in made}
    assert found["local_only"].ranks == found["fedavg"].ranks == {1: 0.5, 4: 0.5}
    assert (found["pooled"].ranks, found["pooled"].rank) == (None, 4)
