"""Sums over a state's tensors have the same bits after a checkpoint, which has another order of names."""

from pathlib import Path
from typing import Literal

import pytest

from fedtext.methods import FedAvg
from fedtext.methods.state import Local, State, Tensors
from fedtext.testing.runs import final
from tests import tiny
from tests.fedtext.methods.stateful import CORPUS, configured


def order(tensors: Tensors) -> Tensors:
    """Return numbers that say at which place of the mapping each tensor stands, beside its own."""
    return Tensors({name: 0 * tensor + place for place, (name, tensor) in enumerate(tensors.items())})


class Ordered(FedAvg):
    """Clients and a server whose steps depend on the order of their state's names."""

    name: Literal["ordered"] = "ordered"  # type: ignore[assignment]

    def client_state(self, received: Tensors) -> State:
        return {"own": received.zeros()}

    def after_update(self, local: Local) -> tuple[State, State]:
        return {"own": Tensors(dict(reversed(local.received.items())))}, {}

    def gradient(self, gradients: Tensors, local: Local) -> Tensors:
        return gradients + 0.01 * order(local.state["own"])

    def server_state(self, shared: Tensors) -> State:
        return {"own": shared.zeros()}

    def server_step(self, server: State, change: Tensors, extras: State, share: float) -> tuple[State, Tensors]:
        return {"own": Tensors(dict(reversed(change.items())))}, change + 0.01 * order(server["own"])


@pytest.mark.parametrize("rounds", [1, 2])
def test_state_has_one_order_of_names_also_after_a_checkpoint(tmp_path: Path, rounds: int) -> None:
    experiment = configured("fedavg").model_copy(update={"method": Ordered()})
    whole = final(experiment, CORPUS)
    final(experiment, CORPUS, tmp_path, rounds=rounds)
    assert final(experiment, CORPUS, tmp_path) == whole
    assert whole[0] != final(tiny.experiment("fedavg"), CORPUS)[0]
