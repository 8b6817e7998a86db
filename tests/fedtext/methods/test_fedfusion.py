"""FedFusion and FedMMD, whose clients keep what they received beside what they train: by hand, and in their limiting
cases."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedtext.client.worker import Worker
from fedtext.layout import TABLE
from fedtext.methods import FedAvg, FedFusion
from fedtext.methods.fedfusion import Mixed, Weighted
from fedtext.methods.fedmmd import mmd
from tests import tiny
from tests.loops import nonempty
from tests.outcomes import final


def test_fused_features_by_hand() -> None:
    local, received = torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, 10.0]])
    for module in (Weighted(1), Weighted(2), Mixed(2)):
        assert torch.equal(module(local, received), local), "local only at first"
    single, multi, conv = Weighted(1), Weighted(2), Mixed(2)
    nn.init.constant_(single.gamma, 0.25)
    multi.gamma.data = torch.tensor([0.25, 0.5])
    conv.weight.data = torch.tensor([[1.0, 0, 0, 2], [0, 1, 3, 0]])
    conv.bias.data = torch.tensor([100.0, 200.0])
    assert single(local, received).tolist() == [[2, 4]]
    assert multi(local, received).tolist() == [[2, 6]]
    assert conv(local, received).tolist() == [[1 + 20 + 100, 2 + 15 + 200]]


def test_multi_has_a_gamma_for_each_feature_and_single_one_for_all() -> None:
    for operator, shapes in (("multi", {(6,)}), ("single", {(1,)}), ("conv", {(6, 12), (6,)})):
        model, _ = tiny.model_and_batch(FedFusion(operator=operator))  # type: ignore[arg-type]
        found = {tuple(t.shape) for name, t in model.parameters.items() if name.startswith("fusion.")}
        assert found == shapes, "both directions have 3 hidden units"


@pytest.mark.parametrize("operator", ["multi", "single", "conv"])
def test_fedfusion_begins_as_fedavg_and_leaves_what_was_received_alone(operator: Any) -> None:
    method = FedFusion(operator=operator)
    model, batch = tiny.model_and_batch(method)
    plain, _ = tiny.model_and_batch(FedAvg())
    plain.parameters = {name: model.parameters[name] for name in plain.parameters}
    losses = method.loss(model, {}, batch)["ce"], FedAvg().loss(plain, {}, batch)["ce"]
    assert torch.equal(*losses)
    frozen = [tensor for name, tensor in model.parameters.items() if method.mirrors(name)]
    for name, tensor in model.parameters.items():
        if name.startswith("fusion."):
            tensor.data += 0.3
    term = method.loss(model, {}, batch)["ce"]
    assert not torch.equal(term, losses[0])
    assert set(torch.autograd.grad(term, frozen, allow_unused=True)) == {None}


def metrics(worker: Worker, flat: np.ndarray) -> list[dict[str, float]]:
    return [reading.metrics for reading in worker.evaluate(flat, 2, [0, 1], final=False).values()]


@pytest.mark.parametrize("operator", ["multi", "single"])
def test_the_servers_model_of_fedfusion_is_the_plain_one_whatever_gamma_is(operator: Any) -> None:
    made = tiny.Finished({"name": "fedfusion", "operator": operator})
    expected = metrics(made.worker, made.flat)
    assert np.any(made.state["fusion.gamma"] != 0)
    made.state["fusion.gamma"][:] = 0.7
    assert metrics(made.worker, made.flat) == expected
    plain = tiny.Finished("fedavg")
    flat = plain.layout.pack({name: made.state[name] for name in plain.state})
    assert metrics(plain.worker, flat) == expected


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("method", ["fedfusion", "fedmmd"])
def test_what_was_received_stays_as_it_was_for_a_turn_and_is_renewed_by_the_next(method: str, optimizer: str) -> None:
    training = tiny.TRAINING | {"rounds": 1, "optimizer": {"name": optimizer, "lr": 0.1, "persist": True}}
    made = tiny.Finished(method, training=training)
    client, sent = tiny.TWO.clients[0], made.state
    assert np.any(sent[TABLE] != made.layout.views(made.before)[TABLE])
    assert not made.worker.train(made.flat, 2, [0])[0].error
    own = {name: tensor.numpy() for name, tensor in made.worker.workspaces.stacks[1].tensors(0).items()}
    assert np.array_equal(own["embedding_received.weight"], sent[TABLE][client.rows_R])
    assert not np.array_equal(own[TABLE], own["embedding_received.weight"])
    for name in nonempty(sent):
        if name.startswith("encoder."):
            assert np.array_equal(own[name.replace("encoder.", "encoder_received.")], sent[name])
            assert not np.array_equal(own[name], sent[name])
    made.worker.evaluate(made.flat, 2, [0], final=True)
    tuned = made.worker.workspaces.stacks[1].tensors(0)
    assert np.array_equal(tuned["embedding_received.weight"].numpy(), sent[TABLE][client.rows_R])
    assert not np.array_equal(tuned[TABLE].numpy(), sent[TABLE][client.rows_R])
    assert made.private == {}, "no client starts with it either"
    assert not [name for name in made.worker.private[0] if not name.startswith("#optimizer/")]


def test_mmd_by_hand_and_of_features_that_did_not_move() -> None:
    local, received = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[3.0]], requires_grad=True)
    value = mmd(local, received)  # d^2 = 4 is its own mean
    across = sum(math.exp(-factor) for factor in (4, 2, 1, 1 / 2, 1 / 4))
    assert value.item() == pytest.approx(10 - 2 * across)
    value.backward()
    assert received.grad is None
    slope = sum(factor * math.exp(-factor) for factor in (4, 2, 1, 1 / 2, 1 / 4))  # d/dx of -2 exp(-f (x - y)^2 / 4)
    assert local.grad is not None
    assert local.grad.item() == pytest.approx(slope * (1 - 3))
    same = torch.randn(6, 3, dtype=torch.float64)
    assert mmd(same, same).item() == pytest.approx(0, abs=1e-12)
    assert mmd(same, same + 1).item() > 0.1
    for seed in nonempty(range(200)):
        features = torch.randn(7, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        moved = features.clone().requires_grad_()
        value = mmd(moved, features + 1e-9)
        assert value.item() >= 0, "rounding made it negative in a third of these cases"
        assert torch.autograd.grad(value, moved)[0].any()
    constant = torch.zeros(2, 3)
    assert mmd(constant, constant).item() == 0


def test_a_batch_of_one_text_has_no_discrepancy() -> None:
    """Its only distance would be the bandwidth, and its gradient the larger the less the features have moved."""
    made = tiny.experiment("fedmmd", training=tiny.TRAINING | {"batch_size": 1})
    without = made.model_copy(update={"method": made.method.model_copy(update={"lambda_": 0.0})})
    assert final(tiny.federation(made))[0] == final(tiny.federation(without))[0]


@pytest.mark.parametrize("model", [{}, {"dropout": 0.3}, {"name": "bag"}])
def test_fedmmd_without_its_weight_is_fedavg(model: dict[str, Any]) -> None:
    """With an engine that records the steps of both methods, and computes neither in one function."""
    engine = "reference" if model.get("name") == "bag" else "cells"
    sections = {"model": {"embedding": {"dim": 5}} | model, "training": tiny.TRAINING | {"engine": engine}}
    expected = tiny.Finished("fedavg", **sections)
    made = tiny.Finished({"name": "fedmmd", "lambda": 0}, **sections)
    assert np.array_equal(made.flat, expected.flat)
    assert made.rows[-1].clients == expected.rows[-1].clients
    assert not np.array_equal(tiny.Finished("fedmmd", **sections).flat, expected.flat)
