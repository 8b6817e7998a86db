"""Every method's objective by hand: two clients in float64."""

from typing import Any

import numpy as np
import pytest
import torch

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.participants import participants
from fedtext.layout import is_table
from fedtext.methods import METHODS
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from tests import tiny
from tests.fedtext.methods.objectives import BY_HAND, CORPUS, EPOCHS, LR, NAMES, ROUNDS, Objective, attentive, descend
from tests.loops import nonempty


def test_every_method_is_among_those_by_hand() -> None:
    elsewhere = {"fedevocab", "fedrecon", "scaffold", "feddyn"}  # test_fedevocab.py, test_state.py
    assert {options["name"] for options, _ in BY_HAND} == set(METHODS) - elsewhere


@pytest.mark.parametrize(("options", "objective"), BY_HAND, ids=NAMES)
def test_two_clients_by_hand(options: dict[str, Any], objective: Objective) -> None:
    """What the server has and what each client keeps, after full-batch gradient descent. All numbers are drawn: gate
    and gamma would begin at zero, where part of the gradient is."""
    training = {"rounds": ROUNDS, "local_epochs": EPOCHS, "batch_size": 99, "optimizer": {"lr": LR, "momentum": 0}}
    model = {"name": "bag", "embedding": {"dim": 5}, "hidden": ()}
    experiment = tiny.experiment(options, model=model, training=training, evaluation={"personalize": None})
    rng = np.random.default_rng(2)
    shared, private = (
        {name: np.float32(0.5) * rng.standard_normal(tensor.shape, np.float32) for name, tensor in part.items()}
        for part in initial(experiment, CORPUS)
    )
    fleet = LocalFleet(experiment, CORPUS, private)
    federation = Federation(experiment, shared, fleet, None)
    list(federation.run())
    clients = participants(experiment, CORPUS)[-1 if experiment.method.pooled else 0 :]
    shares = [len(client.train) / sum(len(c.train) for c in clients) for client in clients]
    state, first = ({name: torch.from_numpy(t).double() for name, t in part.items()} for part in (shared, private))
    own = {client.id: first for client in clients}
    for round_ in range(1, ROUNDS + 1):
        ends = [descend(objective, state | own[c.id], c, round_, experiment) for c in clients]
        own = {client.id: {name: end[name] for name in private} for client, end in zip(clients, ends, strict=True)}
        if options["name"] == "fedatt":
            state = {name: attentive(tensor, [end[name] for end in ends]) for name, tensor in state.items()}
        else:
            state = {name: sum(n * end[name] for n, end in zip(shares, ends, strict=True)) for name in shared}
    compared = [(name, value, state[name]) for name, value in federation.state.items()]
    for client in nonempty(clients):
        kept = fleet.worker.private[client.id]
        assert set(kept) == set(private)
        for name, value in kept.items():
            rows = client.rows_R[1:] - 1 if is_table(name) else slice(None)
            compared.append((name, value, own[client.id][name][rows]))
    for name, value, expected in nonempty(compared):
        assert np.allclose(value, expected, atol=2e-6), name
