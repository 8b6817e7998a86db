"""Sentences of a dry run name the trials that they are about."""

from collections.abc import Sequence

import pytest

from dashboards.report import Sweep
from dashboards.trial import title
from fedtext.config.experiment import Experiment
from sweeps.labels import Names
from sweeps.summary import _each_once
from tests.loops import nonempty
from tests.planned import experiment
from tune_spaces.cases import Case, cases

SPACE = {"method.lambda1": {"grid": [0.1, 0.2, 0.3]}, "training.optimizer.lr": {"grid": [0.01, 0.1]}}


def _made(given: Experiment) -> list[Case]:
    return cases(given.model_dump(mode="json"), given, "test")


@pytest.fixture(scope="module")
def swept() -> list[Case]:
    baselines = [{"name": "fedavg"}, {"name": "kteps", "lambda1": 0.5}]
    return _made(experiment(seeds=2, tune={"metric": "Ag"}, baselines=baselines, space=SPACE))


def _where(cases: Sequence[Case], **values: float) -> list[Case]:
    """Return the cases of the space with these last parts of keys."""
    return [
        case
        for case in cases
        if not case.baseline
        and all(
            value == values[last] for key, value in case.overrides.items() if (last := key.rpartition(".")[2]) in values
        )
    ]


def test_cases_are_named_by_what_they_alone_have(swept: list[Case]) -> None:
    names, space = Names(swept), _where(swept)
    assert names.of([case for case in swept if case.experiment.method.name == "fedavg"]) == "fedavg"
    assert names.of(space) == "kteps"
    assert names.of(_where(swept, lambda1=0.2)) == "kteps lambda1=0.2"
    assert names.of(_where(swept, lambda1=0.2, lr=0.1)) == "kteps lambda1=0.2 lr=0.1"
    two = [*_where(swept, lambda1=0.1), *_where(swept, lambda1=0.3)]
    assert names.of(two) == "kteps lambda1=0.1 or 0.3"
    assert names.of([case for case in space if case.experiment.seed == 1]) == "kteps seed=1"
    assert names.of([case for case in swept if case.baseline]) == "fedavg, kteps lambda1=0.5"


def test_cases_that_no_values_tell_from_the_others_are_listed(swept: list[Case]) -> None:
    mixed = [*_where(swept, lambda1=0.1, lr=0.01), *_where(swept, lambda1=0.2, lr=0.1)]
    assert Names(swept).of(mixed) == ", ".join(case.id for case in mixed)
    more = [*mixed, *_where(swept, lambda1=0.3, lr=0.01)]
    assert Names(swept).of(more) == ", ".join(case.id for case in more[:4]) + " and 2 more"
    several = _made(experiment(tune={"metric": "Ag"}, space={"method.lambda1": {"grid": [n / 10 for n in range(9)]}}))
    assert Names(several).of(several[:6]) == ", ".join(case.id for case in several[:4]) + " and 2 more"


def test_sentences_that_differ_have_names_that_differ_and_equal_ones_appear_once(swept: list[Case]) -> None:
    space = _where(swept)
    said = [
        (f"noise {case.overrides['method.lambda1'] * case.overrides['training.optimizer.lr']:.4g}", case)
        for case in space
    ]
    lines = list(_each_once([*said, *[("of all", case) for case in space]], space))
    assert len(lines) == 7, "two seeds have equal sentences"
    assert lines[-1] == "  of all"
    labels = [line.rpartition(": ")[0] for line in lines[:-1]]
    assert len(set(labels)) == 6
    assert all(nonempty("lambda1=" in label and " lr=" in label and "seed" not in label for label in labels))
    assert "  kteps lambda1=0.3 lr=0.1: noise 0.03" in lines


def test_a_setting_that_is_called_as_its_method_is_not_written_beside_it() -> None:
    """``scaffold case=scaffold`` said the same twice. A name of a setting that tells cases apart stays."""
    settings = {name: {"method": name} for name in ("scaffold", "fedavg")}
    settings["averaged"] = {"method": "fedavg", "training.optimizer.lr": 0.3}
    space = {"case": {"grid": settings}, "training.batch_size": {"grid": [4, 8]}}
    made = _made(experiment(tune={"metric": "Ag"}, space=space))
    assert title(made[0]) == "00-scaffold batch_size=4"
    assert title(made[2]) == "02-fedavg case=averaged batch_size=4"
    names = Names(made)
    scaffold, fedavg, averaged = ([case for case in made if case.overrides["case"] == name] for name in settings)
    assert names.of(scaffold[:1]) == "scaffold batch_size=4"
    assert [names.of(cases) for cases in (fedavg, averaged, fedavg + averaged)] == [
        "fedavg case=fedavg",
        "fedavg case=averaged",
        "fedavg",
    ]
    rows = Sweep("swept", made[0].experiment, made, {}, {}).rows
    labels = {row.id: row.label for row in rows}
    assert labels["00-scaffold"] == "scaffold batch_size=4"
    assert labels["01-fedavg"] == "fedavg batch_size=4"
    assert labels["02-fedavg"] == "fedavg case=averaged batch_size=4"
    assert len(set(labels.values())) == 6


def test_a_title_says_a_swept_method_once() -> None:
    space = {"method": {"grid": ["fedavg", {"name": "kteps", "lambda1": 0.5}]}}
    made = _made(experiment(tune={"metric": "Ag"}, space=space))
    assert [title(case) for case in made] == ["00-fedavg", "01-kteps method=kteps(lambda1=0.5)"]
