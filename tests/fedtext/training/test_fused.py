"""The loss with its gradients as one function (``Method.fused``): what autograd computes, and when it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtext.layout import Layout
from fedtext.methods import KTEPS, FedAvg, FedPer, FedProx
from fedtext.methods.base import Batch, Method, Model
from fedtext.models.bag import BagClassifier, LogisticClassifier
from fedtext.models.parts import Parts, SingleBranch
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.runtime.compiled import compile_problem
from fedtext.testing.epochs import Client, Trained, epoch
from fedtext.training.batches import Assembler, Texts, shuffled
from fedtext.training.config import SGD, Adam, AdamW
from fedtext.training.local import Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace
from tests import tiny
from tests.fedtext.models.networks import FixedLayers
from tests.loops import nonempty

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
CLIENTS = [
    Client(tiny.token_set(np.random.default_rng(n), texts, 1, 90 + n, 12), 90 + n) for n, texts in ((0, 29), (1, 25))
]


class Counted:
    """A fused loss that counts its calls."""

    def __init__(self, loss: Any) -> None:
        self.loss, self.calls = loss, 0

    def takes(self, batch: Batch) -> bool:
        return self.loss.takes(batch)

    def __call__(self, *arguments: Any) -> Sequence[Mapping[str, float]]:
        self.calls += 1
        return self.loss(*arguments)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """Every fused loss that is used."""
    made: list[Counted] = []
    ask = Problem.fused

    def fused(problem: Problem) -> Counted | None:
        found = ask(problem)
        made.extend([Counted(found)] * (found is not None))
        return made[-1] if found else None

    monkeypatch.setattr(Problem, "fused", fused)
    return made


def run(method: Method, model: dict[str, Any], optimizer: SGD | Adam, clients: int = 1) -> list[Trained]:
    keys = {"name": "bigru", "embedding": {"dim": 6}, "hidden": 5, "head": {"hidden": 4}} | model
    return epoch("native", method, RecurrentClassifier.model_validate(keys), CLIENTS[:clients], optimizer, longest=12)


OPTIMIZERS = [SGD(lr=0.05), SGD(lr=0.05, momentum=0), Adam(lr=0.05, clip_norm=0.1), AdamW(lr=0.05, schedule="linear")]
CASES: list[tuple[Method, dict[str, Any]]] = [
    (FedAvg(), {}),
    (FedAvg(), {"name": "lstm", "pooling": "mean"}),
    (FedPer(), {"name": "bilstm", "head": {"layers": 1}}),
    (FedAvg(), {"head": {"hidden": [4, 3]}}),
    (KTEPS(), {}),
    (KTEPS(projection=False, lambda2=0, bandwidth=2.0), {"name": "gru"}),
    (KTEPS(architecture="encoder", distillation="standard", lambda1=0), {}),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("clients", "steps"), [(1, 4), (2, 5)])
@pytest.mark.parametrize(("method", "model"), CASES)
def test_steps_are_those_of_autograd(
    method: Method,
    model: dict[str, Any],
    clients: int,
    steps: int,
    optimizer: SGD | Adam,
    counted: list[Counted],
    monkeypatch: Any,
) -> None:
    """Also those that two clients make together, here the first three: the others are of clients that are alone.

    Args:
        method, model, optimizer: What is trained.
        clients: The number of clients, of 29 and 25 texts in batches of 8.
        steps: The number of steps.
        counted, monkeypatch: Fixtures.
    """
    trained = run(method, model, optimizer, clients)
    assert [each.calls for each in counted] == [steps], "every batch"
    monkeypatch.setattr(Problem, "fused", lambda problem: None)
    for got, expected in nonempty(zip(trained, run(method, model, optimizer, clients), strict=True)):
        assert got.terms == pytest.approx(expected.terms, rel=1e-12)
        for name, tensor in nonempty(expected.after.items()):
            assert torch.allclose(got.after[name], tensor, rtol=1e-10, atol=1e-13), name


@pytest.mark.parametrize("model", [BagClassifier(hidden=(4,)), LogisticClassifier()])
def test_bags_of_words(model: Any, counted: list[Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    trained = [bags(model)]
    assert counted[0].calls == 4
    monkeypatch.setattr(Problem, "fused", lambda problem: None)
    trained.append(bags(model))
    for name, tensor in nonempty(trained[1].items()):
        assert torch.allclose(trained[0][name], tensor, rtol=1e-10, atol=1e-13), name


def bags(model: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    method, client, cpu = FedAvg(), CLIENTS[0], torch.device("cpu")
    network = method.network(Parts(model, 2)).double()
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    stack = Stack(Layout(shapes), [client.rows], Workspace(cpu, torch.float64))
    for tensor in stack.tensors(0).values():
        tensor.copy_(torch.randn(tensor.shape, dtype=torch.float64) / 4)
    optimizer = LocalOptimizer(Adam(lr=0.01), stack, 0.01, True, native=True)
    tokens = replace(client.tokens, labels_N=client.tokens.labels_N % 2)
    texts = Texts(tokens, client.rows, as_sets=True)
    work = Work(texts, list(shuffled(len(texts), 8, 1, 0, 1, 0)))
    train(Problem(method, network, {}), Assembler(None, True, cpu, "native"), optimizer, [work])
    return {name: tensor.clone() for name, tensor in stack.tensors(0).items()}


class Halved(FedAvg):
    """A subclass with an objective of its own."""

    name: str = "halved"  # type: ignore[assignment]

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {"ce": model.cross_entropy(batch) / 2}


class Weighted(KTEPS):
    """A subclass with other weights."""

    name: str = "weighted"  # type: ignore[assignment]

    @property
    def weights(self) -> Mapping[str, float]:
        return {"ce_private": 0.5}


class Logits(SingleBranch):
    """A network with other logits."""

    def forward(self, batch: Batch) -> Tensor:
        return 2 * super().forward(batch)


class Own(FedAvg):
    """A method with that network."""

    name: str = "own"  # type: ignore[assignment]

    def network(self, parts: Parts) -> nn.Module:
        return Logits(parts)


class Smoothed(SingleBranch):
    """A network with another loss."""

    def cross_entropy(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self(batch), batch.labels_B, label_smoothing=0.1)


class Smooth(FedAvg):
    """A method with that network."""

    name: str = "smooth"  # type: ignore[assignment]

    def network(self, parts: Parts) -> nn.Module:
        return Smoothed(parts)


class Scaled(nn.Linear):
    """A layer of another kind that is a Linear."""

    def forward(self, features_BF: Tensor) -> Tensor:
        return 2 * super().forward(features_BF)


class Headed(FedAvg):
    """A method whose network has another head: of layers of another kind, without biases, or with computed weights."""

    name: str = "headed"  # type: ignore[assignment]
    kind: str

    def network(self, parts: Parts) -> nn.Module:
        network = super().network(parts)
        last = network.head[-1]
        if self.kind == "layer":
            network.head[-1] = Scaled(last.in_features, last.out_features)
        elif self.kind == "unbiased":
            network.head[-1] = nn.Linear(last.in_features, last.out_features, bias=False)
        elif self.kind == "normed":
            nn.utils.parametrizations.weight_norm(last)
        else:
            network.head = Residual(*network.head)
        return network


class Residual(nn.Sequential):
    """Layers to whose output something is added."""

    def forward(self, features_BF: Tensor) -> Tensor:
        return super().forward(features_BF) + features_BF.mean()


class Transferred(KTEPS):
    """A subclass with another term."""

    name: str = "transferred"  # type: ignore[assignment]

    def transfer(self, g_s_BC: Tensor, g_p_BC: Tensor) -> Tensor:
        return 100 * super().transfer(g_s_BC, g_p_BC)


HEADS = [Headed(kind=kind) for kind in ("layer", "unbiased", "normed", "head")]


@pytest.mark.parametrize("method", [Halved(), Weighted(), Own(), FedProx(mu=0.5), Smooth(), Transferred(), *HEADS])
def test_a_subclass_with_another_objective_is_not_asked(method: Method, counted: list[Counted]) -> None:
    (trained,) = run(method, {}, SGD(lr=0.05))
    assert not counted
    assert any(bool((trained.after[name] != before).any()) for name, before in trained.before.items())


@pytest.mark.parametrize("model", [{"dropout": 0.2}, {"pooling": "last"}, {"layers": 2}])
def test_models_that_only_autograd_trains(model: dict[str, Any], counted: list[Counted]) -> None:
    run(FedAvg(), model, SGD(lr=0.05))
    assert not counted


def test_what_does_not_move_is_left_to_autograd(counted: list[Counted]) -> None:
    (trained,) = run(FedAvg(), {}, SGD(lr=0.05, embedding_lr=0))
    assert counted[0].calls == 0
    assert torch.equal(trained.before["embedding.weight"], trained.after["embedding.weight"])


@pytest.mark.parametrize("method", ["fedavg", "kteps"])
def test_what_never_changes_is_left_to_autograd(method: str) -> None:
    """It has no gradient: a fused loss would look for one."""
    model, found = FixedLayers(embedding={"dim": 5}, hidden=4, head={"hidden": 3}), []  # type: ignore[arg-type]
    for engine in ("native", "cells"):
        made = tiny.experiment(method, training=tiny.TRAINING | {"engine": engine}, evaluation={"personalize": None})
        federation = tiny.federation(made.model_copy(update={"model": model}))
        list(federation.run())
        found.append(federation.state)
    native, cells = found
    assert not any(name.startswith("encoder") for name in nonempty(native))
    for name, tensor in nonempty(native.items()):
        assert np.allclose(tensor, cells[name], rtol=1e-4, atol=1e-6), name


class TwoTables(SingleBranch):
    """A network with a second table, which its loss does not use."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.embedding_second = parts.embedding()


class Beside(FedAvg):
    """A method with that network."""

    name: str = "beside"  # type: ignore[assignment]

    def network(self, parts: Parts) -> nn.Module:
        return TwoTables(parts)


def test_tables_beside_one_another_are_left_to_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are parts of the rows of one table in memory, which are not contiguous."""
    (got,) = run(Beside(), {}, SGD(lr=0.05))
    monkeypatch.setattr(Problem, "fused", lambda problem: None)
    (expected,) = run(Beside(), {}, SGD(lr=0.05))
    for name, tensor in nonempty(expected.after.items()):
        assert torch.equal(got.after[name], tensor), name
