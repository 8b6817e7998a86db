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


def test_other_spellings_of_numbers_and_declared_bools_are_read() -> None:
    read = Outer.model_validate({"whole": "3", "real": "1e-5", "either": 2.0, "flag": True, "loose": True})
    assert (read.whole, read.real, read.either, read.flag, read.loose) == (3, 1e-5, 2, True, True)
    assert type(Outer.model_validate(read.model_dump()).loose) is bool
