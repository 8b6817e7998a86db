"""Methods in limiting cases, and what holds of all of them."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
import torch

from fedtext.aggregations import IndividualAggregation
from fedtext.aggregations.base import State, Weight, samples
from fedtext.client.local_fleet import LocalFleet
from fedtext.layout import TABLE
from fedtext.messages import Update
from fedtext.methods import METHODS, FedAvg, FedProx
from fedtext.methods.base import Batch, Model
from fedtext.parameters import initial
from tests import tiny
from tests.loops import nonempty


def test_fedprox_by_hand_and_without_its_weight() -> None:
    model, batch = tiny.model_and_batch(FedProx())
    received = {name: tensor.detach() - 0.5 for name, tensor in model.parameters.items()}
    numbers = sum(tensor.numel() for tensor in received.values())
    terms = FedProx(mu=0.2).loss(model, received, batch)
    assert terms["proximal"].item() == pytest.approx(numbers * 0.25)
    assert FedProx(mu=0.2).objective(terms).item() == pytest.approx(terms["ce"].item() + 0.2 / 2 * numbers * 0.25)
    assert terms["ce"] == FedAvg().loss(model, {}, batch)["ce"]
    assert set(FedProx(mu=0).loss(model, received, batch)) == {"ce"}


def test_under_adam_a_small_proximal_term_holds_the_embedding_back_and_under_sgd_it_hardly_does() -> None:
    corpus = tiny.corpus(clients=2, texts=40, vocabulary=200)
    moved = {}
    for name, lr in (("sgd", 0.1), ("adam", 0.01)):
        training = tiny.TRAINING | {"rounds": 1, "optimizer": {"name": name, "lr": lr}}
        for mu in (0.0, 0.01):
            made = tiny.Finished({"name": "fedprox", "mu": mu}, corpus, training=training)
            moved[name, mu] = np.linalg.norm(made.state[TABLE] - made.layout.views(made.before)[TABLE])
    assert moved["sgd", 0.01] / moved["sgd", 0.0] > 0.9
    assert moved["adam", 0.01] / moved["adam", 0.0] < 0.75


@pytest.mark.parametrize("method", METHODS)
def test_padding_changes_neither_loss_nor_gradient(method: str) -> None:
    chosen = METHODS[method]()
    model, batch = tiny.model_and_batch(chosen)
    garbage = batch.tokens_BT.clone()
    garbage[torch.arange(6) >= batch.lengths_B[:, None]] = 7
    received = {name: tensor.detach() - 0.5 for name, tensor in model.parameters.items()}
    results = []
    for tokens in (batch.tokens_BT, garbage):
        loss = chosen.objective(chosen.loss(model, received, Batch(tokens, batch.lengths_B, batch.labels_B)))
        leaves = list(model.parameters.values())
        results.append([loss, *torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)])
    assert all(nonempty(torch.equal(a, b) for a, b in zip(*results, strict=True)))


def test_fedavg_with_one_client_equals_pooled_training() -> None:
    corpus = tiny.corpus(clients=1)
    finals = []
    for method in ("fedavg", "pooled"):
        # the pooled client has another number, so only batches that do not depend on the draw are comparable
        experiment = tiny.experiment(method, training={"rounds": 3, "local_epochs": 1, "batch_size": 999})
        federation = tiny.federation(experiment, corpus)
        list(federation.run())
        finals.append(federation.flat)
    assert np.allclose(*finals, atol=1e-6)
    assert not np.array_equal(finals[0], tiny.federation(experiment, corpus).flat)


class FirstMedian(IndividualAggregation):
    """Of as many clients as ``looked_at``."""

    name: str = "first_median"
    secure = ""
    looked_at: int = 3

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, np.ndarray], Mapping[str, float]]:
        deltas = [update.tensors for update in itertools.islice(updates, self.looked_at)]
        medians = {name: value + np.median([delta[name] for delta in deltas], 0) for name, value in state.items()}
        return medians, {"looked_at": len(deltas)}


class CoordinateMedian(FedAvg):
    looked_at: int = 3

    @property
    def aggregation(self) -> FirstMedian:
        return FirstMedian(looked_at=self.looked_at)


@pytest.mark.parametrize("looked_at", [3, 1])
def test_a_method_that_wants_every_update_gets_them_in_client_order_and_all_of_them_count(looked_at: int) -> None:
    corpus, training = tiny.corpus(clients=3), tiny.TRAINING | {"rounds": 1}
    experiment = tiny.experiment("fedavg", training=training, wire={"rows": "all"})
    experiment = experiment.model_copy(update={"method": CoordinateMedian(looked_at=looked_at)})
    private = initial(experiment, corpus)[1]
    federation = tiny.federation(experiment, corpus)
    before = federation.flat
    worker = LocalFleet(experiment, corpus, private).worker
    replies = [worker.train(before, 1, [client])[0] for client in range(3)]
    deltas = [
        federation.layout.pack(dict(federation.decoder.update(r.payload, r.client, before, 1).tensors)) for r in replies
    ]
    (record,) = federation.run()
    assert np.allclose(federation.flat - before, np.median(deltas[:looked_at], 0), atol=1e-6)
    assert record.metrics["looked_at"] == looked_at
    assert record.metrics["clients_trained"] == 3
    assert record.metrics["bytes_up"] == sum(reply.bytes_up for reply in replies)


def test_a_network_has_its_own_parameters_back_after_a_call() -> None:
    model, batch = tiny.model_and_batch(FedAvg())
    before = {name: parameter.detach().clone() for name, parameter in model.network.named_parameters()}
    given = {name: tensor + 1 for name, tensor in model.parameters.items()}
    changed = Model(model.network, given)(batch)
    after = dict(model.network.named_parameters())
    assert list(before) == list(after)
    assert all(nonempty(torch.equal(after[name], tensor) for name, tensor in before.items()))
    assert not torch.allclose(changed, model(batch))


def test_the_objective_of_a_stack_is_the_sum_over_its_clients() -> None:
    method = FedProx(mu=4.0)
    assert method.objective({"ce": torch.tensor([1.0, 2.0])}).item() == 3
    assert method.objective({"ce": torch.tensor(1.0), "proximal": torch.tensor(3.0)}).item() == 7
    assert method.objective({"ce": torch.tensor([1.0, 2.0]), "proximal": torch.tensor([3.0, 0.5])}).item() == 10
