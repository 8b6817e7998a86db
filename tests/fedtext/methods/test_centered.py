"""A server's step of a method, after an aggregation that scales updates: centered clipping."""

from typing import Any, Literal

import numpy as np
import pytest
import torch

from fedtext.config.compatibility import problems
from fedtext.methods import FedAvg
from fedtext.methods.base import Method
from fedtext.methods.state import Local, State, Tensors
from tests.fedtext.methods.stateful import CORPUS, EPOCHS, LR, ROUNDS, configured, trained
from tests.fedtext.methods.test_state import slopes
from tests.loops import nonempty

RADIUS = 0.05


class Centered(FedAvg):
    """Clients send how far their update is from the last step, which norm_bounded shortens."""

    name: Literal["centered"] = "centered"  # type: ignore[assignment]
    sends_state = True
    whole_table = True  # v has rows of words that a client does not have

    def server_state(self, shared: Tensors) -> State:
        return {"v": shared.zeros()}

    def before_sending(self, local: Local) -> Tensors:
        return local.delta - local.server["v"]

    def server_step(self, server: State, change: Tensors, extras: State, share: float) -> tuple[State, Tensors]:
        v = server["v"] + change
        return {"v": v}, v


class Counted(Centered):
    """It sends a number beside that."""

    name: Literal["counted"] = "counted"  # type: ignore[assignment]

    def extras(self, shared: Tensors) -> State:
        return {"count": Tensors(one=torch.zeros(()))}

    def after_update(self, local: Local) -> tuple[State, State]:
        return {}, {"count": Tensors(one=torch.ones(()))}


def bounded(method: Method) -> Any:
    server = {"weights": "uniform", "aggregation": {"norm_bounded": {"norm": RADIUS}}}
    return configured("fedavg", server=server).model_copy(update={"method": method})


def test_centered_clipping_is_a_method_with_bounded_norms() -> None:
    """v is the last v and the mean of the clipped distances of updates from it (Karimireddy et al. 2021, L = 1)."""
    experiment = bounded(Centered())
    assert not list(problems(experiment))
    federation, _, w = trained(experiment)
    v, shortened = Tensors(w).zeros(), 0
    for _ in range(ROUNDS):
        step = Tensors(w).zeros()
        for client in CORPUS.clients:
            y = Tensors(w)
            for _ in range(EPOCHS):
                y -= LR * Tensors(slopes(y, client))
            apart = y - w - v
            length = float(torch.cat([tensor.flatten() for tensor in apart.values()]).norm())
            step += min(1.0, RADIUS / length) * apart
            shortened += length > RADIUS
        v = v + step / len(CORPUS.clients)
        w = Tensors(w) + v
    assert shortened > 0
    found = federation.layout.views(federation.flat)
    for name in nonempty(w):
        assert np.allclose(found[name], w[name].numpy(), atol=1e-6), name


@pytest.mark.parametrize(("method", "why"), [(Counted(), "and with them count"), ("feddyn", "cannot know by how much")])
def test_what_a_scaled_update_would_spoil_is_refused(method: Any, why: str) -> None:
    chosen = configured("feddyn").method if method == "feddyn" else method
    assert any(why in each for each in problems(bounded(chosen)))
