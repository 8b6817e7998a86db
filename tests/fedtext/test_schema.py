"""Fields of sections: true and false are no numbers."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt, ValidationError

from fedtext.schema import Strict
from tests.loops import nonempty


class Inner(Strict):
    size: int = 1


class Outer(Strict):
    whole: int = 1
    real: float = 1.0
    bounded: Annotated[float, Field(gt=0)] | None = None
    either: PositiveInt | Literal["auto"] = "auto"
    several: tuple[int, ...] = ()
    named: dict[str, float] = Field(default_factory=dict)
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = ()
    flag: bool = False
    loose: bool | int = 0
    level: Literal[0, 1] = 0
    levels: tuple[Literal[0, 1, "auto"], ...] = ()
    mixed: Literal[0, True] = 0


def test_true_and_false_are_refused_where_a_number_is_declared() -> None:
    for key, value in nonempty(
        {
            "whole": True,
            "real": False,
            "bounded": True,
            "either": True,
            "several": [1, True],
            "named": {"a": True},
            "inner": {"size": True},
            "inners": [{"size": False}],
        }.items()
    ):
        with pytest.raises(ValidationError, match=r"should be a valid (integer|number)"):
            Outer.model_validate({key: value})


def test_true_and_false_are_refused_where_the_numbers_one_and_zero_are_declared() -> None:
    for key, value in nonempty((("level", True), ("level", False), ("levels", ["auto", True]))):
        with pytest.raises(ValidationError, match="should be 0 or 1"):
            Outer.model_validate({key: value})
    read = Outer.model_validate({"level": 1, "levels": [0, "auto"], "mixed": True})
    assert (read.level, read.levels, read.mixed) == (1, (0, "auto"), True)


def test_other_spellings_of_numbers_and_declared_bools_are_read() -> None:
    read = Outer.model_validate({"whole": "3", "real": "1e-5", "either": 2.0, "flag": True, "loose": True})
    assert (read.whole, read.real, read.either, read.flag, read.loose) == (3, 1e-5, 2, True, True)
    assert type(Outer.model_validate(read.model_dump()).loose) is bool
