"""The number of parameters of an experiment: of one network for all cases that differ in what it does not depend on."""

from typing import Any, Literal, get_args, get_origin

import pytest
import torch

from fedtext import parameters
from fedtext.config.experiment import Experiment
from fedtext.methods import METHODS
from fedtext.methods.kteps import KTEPS
from fedtext.parameters import build_network, shared_numbers
from fedtext.schema import watched
from tests import tiny
from tests.loops import nonempty

FACTS = (3, 2, 0)  # classes, clients, features


def others(name: str) -> list[dict[str, Any]]:
    """Keys of a method with another value than the default, one at a time, as far as that is valid."""
    found: list[dict[str, Any]] = []
    for key, field in METHODS[name].model_fields.items():
        if key == "name":
            continue
        if get_origin(field.annotation) is Literal:
            values: list[Any] = list(get_args(field.annotation))
        elif isinstance(field.default, bool):
            values = [True, False]
        elif isinstance(field.default, int | float):
            values = [field.default / 2 + 1, field.default * 2 + 3, 0.5, 2]
        else:
            values = []
        found += [{field.alias or key: value} for value in values if value != field.default]
    return found


def made(name: str, options: dict[str, Any]) -> Experiment | None:
    try:
        return tiny.experiment({"name": name} | options)
    except ValueError:
        return None


@pytest.mark.parametrize("name", METHODS)
def test_shapes_that_are_known_are_those_of_the_method(name: str) -> None:
    """Whatever was built before: its keys are those that the network was seen to depend on."""
    parameters._KNOWN.clear()
    experiments = [one for options in ({}, *others(name)) if (one := made(name, options))]
    for one in nonempty([*experiments, *reversed(experiments)]):
        direct = {key: tuple(value.shape) for key, value in build_network(one, *FACTS).named_parameters()}
        assert parameters._shapes(one, *FACTS) == direct


def test_a_key_on_which_the_network_depends_is_noticed() -> None:
    experiments = [made("fedfusion", {"operator": operator}) for operator in ("multi", "single", "conv")]
    shapes = [parameters._shapes(one, *FACTS) for one in experiments if one]
    assert len(shapes) == 3
    assert shapes[0] != shapes[2]


def test_cases_of_a_grid_share_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters._KNOWN.clear()
    built = []
    monkeypatch.setattr(parameters, "build_network", lambda *given: (built.append(given), build_network(*given))[1])
    numbers = set()
    for place in range(30):
        options = {"name": "kteps", "lambda1": place / 10, "lambda2": place / 7}
        one = tiny.experiment(options, seed=place % 3, uplink=[{"clip": {"norm": 1 + place}}])
        numbers |= {shared_numbers(one, 3, 2, vocabulary) for vocabulary in (20, 21)}
    assert len(built) == 1
    assert len(numbers) == 2
    shared_numbers(tiny.experiment("kteps"), 4, 2, 20)
    assert len(built) == 2, "another number of classes"


def test_a_section_that_is_read_as_a_whole_has_had_all_its_keys_read() -> None:
    copy, read = watched(KTEPS(lambda1=0.5))
    assert (copy.lambda1, read) == (0.5, {"lambda1"})
    assert isinstance(copy, KTEPS)
    assert copy.private("head_private.weight")
    assert read == {"lambda1"}
    assert copy.model_dump() == KTEPS(lambda1=0.5).model_dump()
    assert read == set(KTEPS.model_fields)


def test_torchs_default_type_in_the_users_program_changes_nothing() -> None:
    runs = []
    for dtype in nonempty((torch.float32, torch.float64)):
        torch.set_default_dtype(dtype)
        try:
            federation = tiny.federation(tiny.experiment(model={"dropout": 0.2}), tiny.corpus())
            list(federation.run())
            assert torch.get_default_dtype() is dtype
        finally:
            torch.set_default_dtype(torch.float32)
        runs.append(federation.flat.tobytes())
    assert runs[0] == runs[1]
