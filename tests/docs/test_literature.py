"""docs/how-to/methods-of-the-literature.md: its methods pass their checks, and do what their papers say."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtext import testing
from fedtext.client.local_fleet import LocalFleet
from fedtext.client.texts import order_of, texts_of
from fedtext.config import loading
from fedtext.methods.base import Method, Model
from fedtext.models.batch import Batch
from fedtext.models.parts import Parts
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from tests import tiny
from tests.commands import ROOT
from tests.loops import nonempty

PAGE = (ROOT / "docs/how-to/methods-of-the-literature.md").read_text()
FILES = {re.findall(r"class (\w+)\(FedAvg\)", text)[0]: text for text in re.findall(r"```python\n(.*?)```", PAGE, re.S)}
CORPUS = tiny.corpus(3)
LR, EPOCHS, ROUNDS = 0.2, 3, 3
Weights = dict[str, Tensor]


def method(name: str, folder: Path, **keys: Any) -> Method:
    (folder / "own.py").write_text(FILES[name])
    ((_, cls),) = loading.load_plugin(loading.find_plugin(folder / "own.py")).parts
    return cls(**keys)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_method_passes_its_check(name: str, tmp_path: Path) -> None:
    assert len(FILES) == 5
    assert f"[{name.replace('Q', 'q-').replace('Per', 'Per-')}]" in PAGE
    testing.check_method(method(name, tmp_path))


def network(made: Any) -> nn.Module:
    return made.method.network(Parts(made.model, CORPUS.classes, len(CORPUS.clients))).double()


def batches() -> list[Batch]:
    """The train texts of each client, as one batch."""
    found = []
    for client in CORPUS.clients:
        texts = client.train
        lengths_B = np.diff(texts.offsets)
        tokens_BT = np.zeros((len(lengths_B), lengths_B.max()), np.int64)
        for row_T, begin, end in zip(tokens_BT, texts.offsets, texts.offsets[1:], strict=False):
            row_T[: end - begin] = client.rows_R[texts.tokens_T[begin:end]]
        labels_B = torch.from_numpy(texts.labels_N.astype(np.int64))
        found.append(Batch(torch.from_numpy(tokens_BT), torch.from_numpy(lengths_B), labels_B))
    return found


class Loops:
    """A run of a method, and what plain loops in float64 begin with."""

    def __init__(self, own: Method, **sections: Any) -> None:
        model = {"name": "gru", "embedding": {"dim": 5}, "hidden": 4, "head": {"hidden": 3}}
        training = {"rounds": ROUNDS, "local_epochs": EPOCHS, "batch_size": 99, "engine": "reference"}
        training |= {"optimizer": {"lr": LR, "momentum": 0.0}}
        training |= sections.pop("training", {})
        base: dict[str, Any] = {"model": model, "training": training, "evaluation": {"personalize": None}}
        self.experiment = made = tiny.experiment("fedavg", **base | sections).model_copy(update={"method": own})
        rng = np.random.default_rng(2)
        shared, private = (
            {name: np.float32(0.5) * rng.standard_normal(tensor.shape, np.float32) for name, tensor in part.items()}
            for part in initial(made, CORPUS)
        )
        federation = Federation(made, shared, LocalFleet(made, CORPUS, private), None)
        list(federation.run())
        self.ended = federation.layout.views(federation.flat)
        self.shared, self.private = (
            {name: torch.from_numpy(tensor).double() for name, tensor in part.items()} for part in (shared, private)
        )
        self.network, self.batches = network(made), batches()
        n_K = np.array([len(batch.labels_B) for batch in self.batches], float)
        self.share_K = n_K / n_K.sum()

    def loss(self, batch: Batch) -> Callable[[Weights], Tensor]:
        return lambda weights: cross_entropy(Model(self.network, weights)(batch), batch.labels_B)

    def descended(self, batch: Batch, weights: Weights, others: Weights, steps: int) -> Weights:
        """The weights after steps of gradient descent that leave others alone."""
        for _ in range(steps):
            leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
            found = torch.autograd.grad(self.loss(batch)(leaves | others), list(leaves.values()))
            weights = {name: leaves[name].detach() - LR * g for name, g in zip(leaves, found, strict=True)}
        return weights

    def check(self, expected: Weights) -> None:
        """The run ended there, but for float32."""
        assert expected.keys() == self.ended.keys()
        for name, tensor in nonempty(expected.items()):
            assert np.allclose(self.ended[name], tensor.numpy(), atol=2e-6), name


def test_fednova_normalises_the_changes_by_the_numbers_of_steps(tmp_path: Path) -> None:
    run = Loops(method("FedNova", tmp_path), training={"batch_size": 4})
    made, steps_K, shared = run.experiment, np.zeros(3), run.shared
    *_, phase = made.method.phases(EPOCHS)
    for round_ in range(1, ROUNDS + 1):
        changes = []
        for client, batch in zip(CORPUS.clients, run.batches, strict=True):
            orders = list(order_of(made, texts_of(made, client, "train"), phase, round_, client.id))
            steps_K[client.id], weights = len(orders), shared
            for chosen in orders:
                weights = run.descended(part(batch, chosen), weights, {}, 1)
            changes.append({name: (weights[name] - shared[name]) / len(orders) for name in shared})
        mean = float(run.share_K @ steps_K)
        shared = {
            name: shared[name] + mean * sum(p * change[name] for p, change in zip(run.share_K, changes, strict=True))
            for name in shared
        }
    assert len(set(steps_K)) > 1
    run.check(shared)


def part(batch: Batch, chosen: Any) -> Batch:
    """The batch of some of its texts."""
    rows = torch.from_numpy(np.asarray(chosen)).long()
    return Batch(batch.tokens_BT[rows], batch.lengths_B[rows], batch.labels_B[rows])


def test_fedrep_trains_the_head_first(tmp_path: Path) -> None:
    run = Loops(method("FedRep", tmp_path, head_epochs=2))
    heads, shared = [run.private] * 3, run.shared
    for _ in range(ROUNDS):
        ended = []
        for place, batch in enumerate(run.batches):
            heads[place] = run.descended(batch, heads[place], shared, 2)
            ended.append(run.descended(batch, shared, heads[place], EPOCHS))
        shared = {name: sum(p * own[name] for p, own in zip(run.share_K, ended, strict=True)) for name in shared}
    run.check(shared)


def test_qfedavg_weighs_clients_by_the_loss_of_the_received_model(tmp_path: Path) -> None:
    q, rate = 2.0, 10.0
    run = Loops(method("QFedAvg", tmp_path, q=q, lipschitz=rate), server={"weights": "uniform"})
    shared = run.shared
    for _ in range(ROUNDS):
        change, step = dict.fromkeys(shared, torch.zeros(())), 0.0
        for batch in run.batches:
            loss, ended = run.loss(batch)(shared).item(), run.descended(batch, shared, {}, EPOCHS)
            delta = {name: rate * (shared[name] - ended[name]) for name in shared}
            change = {name: change[name] + loss**q * delta[name] for name in shared}
            step += q * loss ** (q - 1) * sum(float(d.square().sum()) for d in delta.values()) + rate * loss**q
        shared = {name: shared[name] - change[name] / step for name in shared}
    run.check(shared)


def gradients(own: Method) -> tuple[Loops, Batch, Weights, Weights]:
    """The gradient of a loss at some weights."""
    run = Loops(tiny.experiment("fedavg").method, training={"rounds": 1})
    batch, weights = run.batches[0], run.shared | run.private
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
    loss = own.loss(Model(run.network, leaves), {}, batch)["ce"]
    return run, batch, weights, dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def test_fedsam_takes_the_gradient_at_the_nearby_point(tmp_path: Path) -> None:
    run, batch, weights, found = gradients(method("FedSAM", tmp_path, rho=0.3))
    first = slope(run.loss(batch), weights)
    norm = sum(float(g.square().sum()) for g in first.values()) ** 0.5
    there = {name: weights[name] + 0.3 / norm * first[name] for name in weights}
    for name, expected in nonempty(slope(run.loss(batch), there).items()):
        assert torch.allclose(found[name], expected, atol=1e-9)


def slope(loss: Callable[[Weights], Tensor], weights: Weights) -> Weights:
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
    return dict(zip(leaves, torch.autograd.grad(loss(leaves), list(leaves.values())), strict=True))


def test_per_fedavg_has_the_gradient_through_its_inner_step(tmp_path: Path) -> None:
    """Compared with differences of the outer loss, along a direction."""
    run, batch, weights, found = gradients(method("PerFedAvg", tmp_path, inner_lr=0.3))
    count = len(batch.labels_B)
    inner, outer = (run.loss(part(batch, np.arange(first, count, 2))) for first in (0, 1))

    def adapted(at: Weights) -> float:
        first = slope(inner, at)
        return float(outer({name: at[name] - 0.3 * first[name] for name in at}))

    torch.manual_seed(0)
    way = {name: torch.randn_like(tensor) for name, tensor in weights.items()}
    ahead, behind = (adapted({n: weights[n] + e * way[n] for n in weights}) for e in (1e-5, -1e-5))
    along = sum(float((found[name] * way[name]).sum()) for name in weights)
    assert along == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)
