"""``check_attack`` with an attack that no experiment file can name."""

from typing import Literal

import numpy as np
import pytest

from fedtext.adversaries import Attack
from fedtext.adversaries.base import Tensors
from fedtext.testing import check_attack


class Idle(Attack):
    """An attack of one's own, whose name no experiment file knows."""

    name: Literal["idle"] = "idle"

    def send(self, delta: Tensors, draws: np.random.Generator) -> Tensors:
        return {name: np.zeros_like(tensor) for name, tensor in delta.items()}


class Loud(Idle):
    """It uses draws of numpy's own generator."""

    name: Literal["loud"] = "loud"  # type: ignore[assignment]

    def send(self, delta: Tensors, draws: np.random.Generator) -> Tensors:
        return {name: np.random.random(tensor.shape).astype(np.float32) for name, tensor in delta.items()}


def test_an_attack_of_ones_own_is_checked_without_being_a_plug_in() -> None:
    check_attack(Idle())
    with pytest.raises(AssertionError, match="loud draws from a global generator: use the one that is an argument"):
        check_attack(Loud())
