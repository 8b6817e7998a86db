"""Every method on numbers worked out by hand, and its limiting cases."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fedtext.aggregations import IndividualAggregation
from fedtext.aggregations.base import State, Weight, samples
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.server import ServerSGD
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update
from fedtext.methods import KTEPS, METHODS, FedAvg, FedProx, LocalOnly, Pooled
from fedtext.methods.base import Batch, Model
from fedtext.methods.kteps import gram, hsic
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.parameters import initial
from fedtext.server.aggregation import WeightedSum
from fedtext.server.optimizers import step
from tests import tiny
from tests.loops import nonempty

STATE = {TABLE: np.zeros((3, 2), np.float32), "head.weight": np.array([1.0, 1.0], np.float32)}
LAYOUT = Layout({name: tensor.shape for name, tensor in STATE.items()})


def updates() -> list[Update]:
    """Two clients with 1 and 3 samples; the first holds rows 0 and 1 of the table, the second rows 0 and 2."""
    first = {TABLE: np.array([[4, 4], [8, 8]], np.float32), "head.weight": np.array([4, 0], np.float32)}
    second = {TABLE: np.array([[0, 4], [4, 0]], np.float32), "head.weight": np.array([0, 4], np.float32)}
    return [Update(0, 1, first, np.array([0, 1], np.int32)), Update(1, 3, second, np.array([0, 2], np.int32))]


def empty(updates: list[Update], uniform: bool = False, holders_only: bool = False) -> WeightedSum:
    scale = float(len(updates) if uniform else sum(update.samples for update in updates))
    return WeightedSum(LAYOUT, scale or 1.0, uniform=uniform, holders_only=holders_only)


def applied(total: WeightedSum) -> dict[str, np.ndarray]:
    """STATE after this sum."""
    mean_N, flat = total.mean(), LAYOUT.pack(STATE)
    return LAYOUT.views(flat if mean_N is None else step(ServerSGD(), flat, mean_N, {})[0])


def averaged(updates: list[Update], **how: bool) -> dict[str, np.ndarray]:
    """STATE after these updates."""
    total = empty(updates, **how)
    for update in updates:
        total.add(update)
    return applied(total)


def test_fedavg_weighs_two_clients_by_their_samples() -> None:
    mean = averaged(updates())
    # head: 1 + (1*4 + 3*0)/4 and 1 + (1*0 + 3*4)/4
    # table: row 0 is held by both, (1*4 + 3*0)/4 and (1*4 + 3*4)/4; rows 1 and 2 were changed by one client each
    assert mean["head.weight"].tolist() == [2, 4]
    assert mean[TABLE].tolist() == [[1, 4], [2, 2], [3, 0]]


def test_uniform_weights_and_rows_averaged_over_their_holders() -> None:
    uniform = averaged(updates(), uniform=True)
    assert uniform["head.weight"].tolist() == [3, 3]
    assert uniform[TABLE].tolist() == [[2, 4], [4, 4], [2, 0]]
    holders = averaged(updates(), holders_only=True)
    assert holders["head.weight"].tolist() == [2, 4]
    assert holders[TABLE].tolist() == [[1, 4], [8, 8], [4, 0]]
    first = replace(updates()[0], samples=1600)  # nobody holds row 2
    assert averaged([first], holders_only=True)[TABLE].tolist() == [[4, 4], [8, 8], [0, 0]]


def test_an_update_too_large_for_an_exact_sum_is_refused_by_name() -> None:
    huge = Update(7, 1, {"head.weight": np.array([0, -1e5], np.float32)})
    with pytest.raises(UserError, match="client 7 changed a parameter by 100000 in one round"):
        averaged([huge])


def test_a_round_without_participants_changes_nothing() -> None:
    assert {name: tensor.tolist() for name, tensor in averaged([]).items()} == {
        name: tensor.tolist() for name, tensor in STATE.items()
    }


@given(
    st.lists(
        st.tuples(st.integers(1, 5000), st.floats(-1000, 1000, width=32), st.integers(0, 2)), min_size=1, max_size=9
    ),
    st.randoms(use_true_random=False),
)
def test_sums_have_the_same_bits_in_any_order_and_grouping(clients: list[Any], random: Any) -> None:
    rng = np.random.default_rng(0)
    made = [
        Update(
            number,
            samples,
            {
                TABLE: rng.normal(size=(1, 2)).astype(np.float32) * np.float32(value),
                "head.weight": np.array([value, value / 3], np.float32),
            },
            np.array([row], np.int32),
        )
        for number, (samples, value, row) in enumerate(clients)
    ]
    expected = averaged(made)
    random.shuffle(made)
    total, part = empty(made), empty(made)
    for update in made:
        part.add(update)
        if random.random() < 0.5:
            total.merge(part)
            part = empty(made)
    total.merge(part)
    got = applied(total)
    assert all(nonempty(got[name].tobytes() == tensor.tobytes() for name, tensor in expected.items()))


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


def test_kteps_without_its_weights_is_two_independent_losses() -> None:
    method = KTEPS(lambda1=0, lambda2=0)
    model, batch = tiny.model_and_batch(method)
    terms = method.loss(model, {}, batch)
    g_s, g_p, _, _ = model(batch)
    assert set(terms) == {"ce_shared", "ce_private"}
    assert torch.equal(terms["ce_shared"], cross_entropy(g_s, batch.labels_B))
    assert torch.equal(terms["ce_private"], cross_entropy(g_p, batch.labels_B))


def test_kteps_transfer_by_hand() -> None:
    g_s, g_p = torch.tensor([[0.0, math.log(3)]]), torch.tensor([[math.log(4), 0.0]], requires_grad=True)
    teacher, student = (1 / 4, 3 / 4), (4 / 5, 1 / 5)  # softmax at T = 1
    printed = KTEPS(temperature=1).transfer(g_s, g_p)
    assert printed.item() == pytest.approx(-(student[0] * math.log(teacher[0]) + student[1] * math.log(teacher[1])))
    standard = KTEPS(temperature=1, distillation="standard").transfer(g_s, g_p)
    assert standard.item() == pytest.approx(-(teacher[0] * math.log(student[0]) + teacher[1] * math.log(student[1])))
    # T = 0.25 sharpens the teacher: odds 3 become 3^4
    sharp = KTEPS(temperature=0.25).transfer(g_s, g_p)
    assert sharp.item() == pytest.approx(-(student[0] * math.log(1 / 82) + student[1] * math.log(81 / 82)), rel=1e-5)


@pytest.mark.parametrize("distillation", ["printed", "standard"])
def test_kteps_transfer_teaches_the_private_branch_only(distillation: Literal["printed", "standard"]) -> None:
    g_s, g_p = torch.randn(4, 2, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    KTEPS(distillation=distillation).transfer(g_s, g_p).backward()
    assert g_s.grad is None
    assert g_p.grad is not None


def test_hsic_equals_its_definition_and_by_hand() -> None:
    o_s, o_p = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    centring = torch.eye(6, dtype=torch.float64) - 1 / 6
    expected = torch.trace(gram(o_s, "median") @ centring @ gram(o_p, "median") @ centring) / 25
    assert hsic(o_s, o_p).item() == pytest.approx(expected.item())
    # two points: d^2 is its own median, so both Grams are [[1, 1/e], [1/e, 1]], centred (1 - 1/e)/2 * [[1,-1],[-1,1]]
    points = torch.tensor([[0.0], [7.0]], dtype=torch.float64)
    assert hsic(points, 3 * points).item() == pytest.approx((1 - 1 / math.e) ** 2)
    constant = torch.zeros(6, 2, dtype=torch.float64)
    assert hsic(o_s, constant, bandwidth=1.0).item() == pytest.approx(0, abs=1e-15)


def test_a_kernel_of_a_given_bandwidth_by_hand() -> None:
    """Squared distances 4 and 1 and 5, divided by b = 2."""
    kernel_BB = gram(torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), 2.0)
    assert kernel_BB[0].tolist() == pytest.approx([1.0, math.exp(-2.0), math.exp(-0.5)])
    assert kernel_BB[1, 2].item() == pytest.approx(math.exp(-2.5))


def test_diversity_has_a_gradient_at_any_scale_and_offset_with_a_median_bandwidth_and_not_with_a_small_one() -> None:
    base = torch.randn(8, 128)
    values = []
    for scale, offset in ((1.0, 0.0), (1e-3, 5.0), (1e3, 0.0)):
        o_s = (scale * base + offset).requires_grad_()
        value = hsic(o_s, base.flip(1))
        value.backward()
        values.append(value.item())
        assert o_s.grad is not None
        assert scale * o_s.grad.norm() > 1e-3
    assert values == pytest.approx([values[0]] * 3, rel=1e-2)
    saturated = (10 * base).requires_grad_()
    hsic(saturated, base, bandwidth=2.0).backward()
    assert saturated.grad is not None
    assert saturated.grad.norm() < 1e-12


def test_one_sample_has_no_diversity_term() -> None:
    model, batch = tiny.model_and_batch(KTEPS(), texts=1)
    assert "diversity" not in KTEPS().loss(model, {}, batch)


def test_kteps_inference_modes() -> None:
    model, batch = tiny.model_and_batch(KTEPS())
    shared, private, both = (KTEPS().probabilities(model, batch, mode) for mode in ("shared", "private", "both"))
    assert torch.allclose(both, (shared + private) / 2)
    assert not torch.allclose(shared, private)


def test_what_is_private() -> None:
    for method, expected in (
        (FedAvg(), set()),
        (Pooled(), set()),
        (KTEPS(), {"projection_private", "head_private"}),
        (LocalOnly(), {"embedding", "encoder", "head"}),
    ):
        names = [name for name, _ in method.network(Parts(RecurrentClassifier(), 2)).named_parameters()]
        assert {name.partition(".")[0] for name in names if method.private(name)} == expected


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


def test_kteps_private_parameters_differ_between_clients_and_stay_with_them() -> None:
    corpus, experiment = tiny.corpus(), tiny.experiment("kteps")
    private = initial(experiment, corpus)[1]
    federation = tiny.federation(experiment, corpus)
    fleet = federation.fleet
    list(federation.run())
    heads = [fleet.worker.private[client]["head_private.0.weight"] for client in range(3)]
    assert not np.array_equal(heads[0], heads[1])
    assert not np.array_equal(heads[0], private["head_private.0.weight"])


def test_two_samples_have_a_diversity_term() -> None:
    model, batch = tiny.model_and_batch(KTEPS(), texts=2)
    assert KTEPS().loss(model, {}, batch)["diversity"].item() == pytest.approx((1 - 1 / math.e) ** 2, rel=1e-6)


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
