"""Updates that an attacker's client sends for dummy word vectors, and their distance from the received one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from fedtext.audits.base import LocalUpdate
from fedtext.audits.gradients import local_steps, mean_gradient, rate_scale, step_weight
from fedtext.audits.matching import Client, distance
from fedtext.training.config import SGD
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.leaking import MODEL, ONE_STEP, corpus, finished
from tests.loops import nonempty


def test_the_weight_of_steps_by_hand() -> None:
    """Of three steps with momentum 1/2: 1 + 1/2 + 1/4, 1 + 1/2, and 1."""
    training = ONE_STEP | {"local_epochs": 3, "optimizer": {"lr": 0.1, "momentum": 0.5}}
    made = tiny.experiment(training=training)
    assert (local_steps(made, 8), local_steps(made, 9)) == (3, 6)
    assert step_weight(made, 8) == pytest.approx(4.25)
    assert step_weight(tiny.experiment(training=training | {"optimizer": {"name": "adam"}}), 8) == 3


def turn_of(made: tiny.Finished) -> LocalUpdate:
    """The first client's turn in a last round that an inversion has been kept of."""
    ((_, (observed,)),) = [made.worker.audits.seen[0]]
    return observed.local


def simulated(local: LocalUpdate, **how: Any) -> Client:
    """The client of a local update as an attacker simulates it."""
    known = local.known
    start = known.parameters(local.received)
    scales = {name: rate_scale(known.experiment, name) for name in start}
    shared = list(mean_gradient(local))
    return Client(known.experiment.method, known.network, start, shared, squashed=False, scales=scales, **how)


def sent(client: Client, local: LocalUpdate, order: Sequence[int]) -> list[torch.Tensor]:
    """What it sends for the true word vectors of its texts in an order."""
    texts, table = local.known.read(local.data, "train"), torch.from_numpy(local.known.table(local.received))
    rows_NT = torch.from_numpy(local.data.rows_R[texts.padded_NT].astype(np.int64))
    lengths_N, labels_N = torch.from_numpy(texts.lengths_N), torch.from_numpy(texts.labels_N)
    found = client.gradient(table[rows_NT[order]].flatten(0, 1), lengths_N[order], labels_N[order])
    return [part.detach() for part in found]


@pytest.mark.parametrize("schedule", ["constant", "linear"])
@pytest.mark.parametrize("momentum", [0, 0.9])
@pytest.mark.parametrize(
    ("lengths", "size", "epochs", "model"),
    [
        ([6], 8, 1, MODEL),
        ([4, 6, 3], 8, 1, MODEL),
        ([4, 6, 3], 1, 1, MODEL),
        ([6], 8, 3, MODEL),
        ([6], 8, 3, SCRATCH | {"dropout": 0.0, "adapter": {"lora": {"lr_ratio": 8}}}),
    ],
    ids=["one", "three together", "three in turn", "one in three steps", "a rate for a factor"],
)
def test_the_true_vectors_explain_what_was_received(
    lengths: list[int],
    size: int,
    epochs: int,
    model: dict[str, Any],
    momentum: float,
    schedule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one step and of several, played through in the order in which they were made.

    Args:
        lengths: Lengths of the texts.
        size, epochs: Of the client's batches.
        model, momentum, schedule: What is trained, and how.
        monkeypatch: The fixture.
    """
    monkeypatch.setattr("fedtext.audits.gradient_inversion.Inversion.metrics", lambda self, shared: {})
    optimizer = {"lr": 0.1, "momentum": momentum, "schedule": schedule}
    if "adapter" not in model:  # an attacker's dummies do not move either
        optimizer["embedding_lr"] = 0
    training = ONE_STEP | {"batch_size": size, "local_epochs": epochs, "optimizer": optimizer}
    made = finished(corpus(lengths), ["gradient_inversion"], training=training, model=model)
    local = turn_of(made)
    experiment, train = local.known.experiment, local.data.train
    config = experiment.training.optimizer
    assert isinstance(config, SGD)
    target = [torch.from_numpy(part) for part in mean_gradient(local).values()]
    steps = local_steps(experiment, len(train))
    rates = [config.lr * config.slope(step, steps) for step in range(steps)]
    client = simulated(local, size=size, rates=rates, momentum=config.momentum)
    far = [float(distance("l2", sent(client, local, list(order)), target)) for order in permutations(range(len(train)))]
    assert min(far) < 1e-6
    if steps > 1 and len(lengths) > 1:
        assert max(far) > 1e-4, "the order of steps is seen"


@pytest.mark.parametrize("steps", [1, 2])
def test_what_a_parameter_that_does_not_move_sends_is_zero(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not move in the simulated steps either."""
    monkeypatch.setattr("fedtext.audits.gradient_inversion.Inversion.metrics", lambda self, shared: {})
    local = turn_of(finished(corpus([4, 6]), ["gradient_inversion"]))
    client = simulated(local, size=8, rates=[0.5] * steps, momentum=0.0)
    still = client.shared[-1]
    both: list[Mapping[str, torch.Tensor]] = [
        dict(zip(client.shared, sent(replace(client, scales=client.scales | scales), local, [0, 1]), strict=True))
        for scales in nonempty(({}, {still: 0.0}))
    ]
    assert both[0][still].any()
    assert not both[1][still].any()
    others = [torch.equal(both[0][name], both[1][name]) for name in client.shared if name != still]
    assert all(others) == (steps == 1)


def test_the_distance_of_a_clipped_update_is_that_at_the_best_factor() -> None:
    """Of f = (3, 4) and (0, 2): with a target of c times it, of one that is longer, and of one in another direction."""
    found = [torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0])]

    def far(target: list[torch.Tensor]) -> float:
        return float(distance("l2", found, target, rescaled=True))

    for factor in (1.0, 0.3, 1e-5):
        assert far([tensor * factor for tensor in found]) == pytest.approx(0, abs=1e-10)
    longer = [tensor * 2 for tensor in found]
    assert far(longer) == float(distance("l2", found, longer)) > 0.2, "nothing is lengthened"
    target = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]
    factors = torch.linspace(0, 1, 10001)
    least = min(float(distance("l2", [tensor * c for tensor in found], target)) for c in factors)
    assert far(target) == pytest.approx(least, rel=1e-5)
    away = [-tensor for tensor in target]
    assert far(away) > far([tensor * torch.tensor([-0.1, 1.0]) for tensor in target])
