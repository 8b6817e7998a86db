"""Membership inference by shadow models: which methods it goes with, and which keys it accepts."""

from typing import Any

import pytest
from pydantic import ValidationError

from fedtext.methods import METHODS
from tests import tiny
from tests.loops import nonempty
from tests.sampled import slow_but

REASONS = ("shares no complete encoder and output layer: leave it out", "has all data in one place")


def asked(method: str) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "audits": [{"membership": {"attack": "rmia"}}],
        "training": tiny.TRAINING | {"rounds": 1},
    }
    if method == "fedsgd":
        changes["training"] |= {"optimizer": {"lr": 0.1, "momentum": 0}, "batch_size": {"steps": 1}}
    return changes


def refused(method: str) -> str:
    """Why a method is not attacked; empty if it is."""
    try:
        tiny.experiment(method, **asked(method))
    except ValidationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("method", slow_but(METHODS, "fedavg", "kteps", "fedevocab", "scaffold", "pooled", "fedper"))
def test_every_method_is_attacked_or_refused_with_the_reason(method: str) -> None:
    if reason := refused(method):
        assert any(sentence in reason for sentence in nonempty(REASONS))
    else:
        made = tiny.Finished(method, tiny.corpus(), **asked(method))
        assert 0 <= made.rows[-1].metrics["member_pooled_auc"] <= 1


@pytest.mark.parametrize(
    ("attack", "sentence"),
    [
        ({"rmia": {"shadows": 3}}, "use an even number, 2 or more"),
        ({"lira": {"shadows": 2}}, "greater than or equal to 4"),
        ({"rmia": {"gamma": 0.5}}, "greater than or equal to 1"),
        ({"loss": {"shadows": 2}}, "shadows"),
    ],
)
def test_what_no_attack_can_be_is_refused(attack: Any, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        tiny.experiment(audits=[{"membership": {"attack": attack}}])
