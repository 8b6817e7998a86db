"""What the KTEPS paper compares its method with, and its architectures: by hand, and in their limiting cases."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtext.corpora.types import ClientData
from fedtext.disclosure import reveals
from fedtext.errors import UserError
from fedtext.methods import ASPMTL, KTEPS, PFLDA, FedAvg, FedFusion, FedMMD, FedPer, LGFedAvg
from fedtext.methods.base import Method
from fedtext.methods.fedfusion import Mixed, Weighted
from fedtext.methods.fedmmd import mmd
from fedtext.methods.pfl_da import mixture
from fedtext.models.config import TABLE, RecurrentClassifier
from fedtext.models.recurrent import Parts
from fedtext.worker import Worker
from tests import tiny
from tune_spaces.cases import check_metric

CORPUS = tiny.TWO
ONE_ROUND = tiny.TRAINING | {"rounds": 1}


@pytest.mark.parametrize(
    ("method", "private", "mirrors"),
    [
        (FedPer(), {"head"}, set()),
        (LGFedAvg(), {"embedding", "encoder"}, set()),
        (PFLDA(), {"embedding_private", "encoder_private", "head_private", "gate_private"}, set()),
        (FedFusion(), set(), {"embedding", "encoder"}),
        (FedFusion(operator="conv"), set(), {"embedding", "encoder"}),
        (FedMMD(), set(), {"embedding", "encoder"}),
        (ASPMTL(), set(), set()),
        (KTEPS(architecture="encoder"), {"projection_private", "head_private", "encoder_private"}, set()),
        (
            KTEPS(architecture="everything"),
            {"projection_private", "head_private", "encoder_private", "embedding_private"},
            set(),
        ),
    ],
)
def test_what_is_shared(method: Method, private: set[str], mirrors: set[str]) -> None:
    names = [name for name, _ in method.network(Parts(RecurrentClassifier(), 2)).named_parameters()]
    kept = {name.partition(".")[0] for name in names if method.private(name) and not method.mirrors(name)}
    mirrored = {method.mirrors(name) for name in names if method.mirrors(name)}
    assert kept == private
    assert {name.partition(".")[0] for name in mirrored} == mirrors
    assert mirrored <= {name for name in names if not method.private(name)}


@pytest.mark.parametrize("method", ["fedper", "lg_fedavg"])
def test_two_clients_of_a_cut_model_by_hand(method: str) -> None:
    """What two clients learn in a first round is FedAvg's; here each part is averaged or kept."""
    plain, made = tiny.Finished("fedavg", training=ONE_ROUND), tiny.Finished(method, training=ONE_ROUND)
    start, alone, samples = plain.layout.views(plain.before), [], [len(client.train) for client in CORPUS.clients]
    for client in CORPUS.clients:
        (reply,) = plain.worker.train(plain.before, 1, [client.id])
        update = plain.intake.update(reply.payload, client.id, plain.before)
        alone.append(dict(update.tensors) | {TABLE: _own(update.tensors[TABLE], client)})
    for name, value in made.state.items():
        expected = sum(n * learnt[name] for n, learnt in zip(samples, alone, strict=True)) / sum(samples)
        assert np.allclose(value, start[name] + expected, atol=1e-6), name
    for client, learnt in zip(CORPUS.clients, alone, strict=True):
        for name, value in made.worker.private[client.id].items():
            rows = client.rows_R if name == TABLE else slice(None)
            assert np.allclose(value, (start[name] + learnt[name])[rows], atol=1e-6), name
    assert set(made.state) | set(made.worker.private[0]) == set(start)


def _own(change: np.ndarray, client: ClientData) -> np.ndarray:
    whole = np.zeros((len(CORPUS.vocabulary), change.shape[1]), np.float32)
    whole[client.rows_R[: client.train_rows]] = change
    return whole


class NothingPrivate(FedPer):
    def private(self, parameter: str) -> bool:
        return False


def test_fedper_whose_private_set_is_empty_is_fedavg() -> None:
    assert np.array_equal(tiny.Finished(NothingPrivate()).flat, tiny.Finished("fedavg").flat)
    assert not np.array_equal(tiny.Finished(FedPer()).state[TABLE], tiny.Finished("fedavg").state[TABLE])


@pytest.mark.parametrize("method", ["fedper", "lg_fedavg"])
def test_a_cut_model_is_read_with_the_clients_own_part_and_has_no_ag(method: str) -> None:
    made = tiny.Finished(method)
    assert [set(row["clients"]["client0"]) for row in made.rows] == [{"Ap_0"}, {"Ap_0", "Ap"}]
    sure = {"head.2.bias": np.array([0, 99], np.float32)}  # by this head all texts are of the second class
    if method == "fedper":
        made.worker.private[0] |= sure
    else:
        made.layout.views(made.flat)["head.2.bias"][:] = sure["head.2.bias"]
    scores = made.worker.evaluate(made.flat, 2, [0], personalize=False)
    assert scores == {0: {"Ap_0": pytest.approx(CORPUS.clients[0].test.labels_N.mean())}}


def test_pfl_da_by_hand() -> None:
    g_s, g_p = torch.tensor([[0.0, math.log(3)]]), torch.tensor([[math.log(4), 0.0]])  # 1/4, 3/4 and 4/5, 1/5
    log_BC = mixture(g_s, g_p, torch.tensor([math.log(3)]))  # alpha = 3/4
    assert log_BC.exp()[0].tolist() == pytest.approx([0.75 * 0.25 + 0.25 * 0.8, 0.75 * 0.75 + 0.25 * 0.2])
    for gate, expected in ((200.0, [0.25, 0.75]), (-200.0, [0.8, 0.2]), (0.0, [0.525, 0.475])):
        assert mixture(g_s, g_p, torch.tensor([gate])).exp()[0].tolist() == pytest.approx(expected)


def test_pfl_da_may_train_its_shared_model_on_a_loss_of_its_own() -> None:
    model, batch = tiny.model_and_batch(PFLDA())
    terms = PFLDA(shared_loss=0.5).loss(model, {}, batch)
    assert terms["ce"] == PFLDA().loss(model, {}, batch)["ce"]
    assert terms["ce_shared"].item() == pytest.approx(0.5 * cross_entropy(model(batch)[0], batch.labels_B).item())


def test_pfl_da_with_an_open_gate_is_fedavg_and_with_a_new_one_the_mean_of_both() -> None:
    model, batch = tiny.model_and_batch(PFLDA())
    shared, private, both = (PFLDA().probabilities(model, batch, which) for which in ("shared", "private", "both"))
    assert torch.allclose(both, (shared + private) / 2)
    assert not torch.allclose(shared, private)
    right_B = both[torch.arange(5), batch.labels_B]
    assert PFLDA().loss(model, {}, batch)["ce"].item() == pytest.approx(-right_B.log().mean().item())
    model.parameters["gate_private.bias"] = torch.tensor([200.0], dtype=torch.float64)
    plain = cross_entropy(shared.log(), batch.labels_B)
    assert PFLDA().loss(model, {}, batch)["ce"].item() == pytest.approx(plain.item())
    assert torch.allclose(PFLDA().probabilities(model, batch, "both"), shared)


def test_the_gate_reads_private_features_only() -> None:
    model, batch = tiny.model_and_batch(PFLDA())
    model.parameters["gate_private.weight"] = torch.ones(1, 6, dtype=torch.float64)
    reached = torch.autograd.grad(model(batch)[2].sum(), list(model.parameters.values())[:-2], allow_unused=True)
    names = {name.partition(".")[0] for name, grad in zip(model.parameters, reached, strict=False) if grad is not None}
    assert names == {"embedding_private", "encoder_private"}


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


@pytest.mark.parametrize("operator", ["multi", "single"])
def test_the_servers_model_of_fedfusion_is_the_plain_one_whatever_gamma_is(operator: Any) -> None:
    made = tiny.Finished({"name": "fedfusion", "operator": operator})
    expected = made.worker.evaluate(made.flat, 2, [0, 1], personalize=False)
    assert np.any(made.state["fusion.gamma"] != 0)
    made.state["fusion.gamma"][:] = 0.7
    assert made.worker.evaluate(made.flat, 2, [0, 1], personalize=False) == expected
    plain = tiny.Finished("fedavg")
    flat = plain.layout.pack({name: made.state[name] for name in plain.state})
    assert plain.worker.evaluate(flat, 2, [0, 1], personalize=False) == expected


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("method", ["fedfusion", "fedmmd"])
def test_what_was_received_stays_as_it_was_for_a_turn_and_is_renewed_by_the_next(method: str, optimizer: str) -> None:
    training = ONE_ROUND | {"optimizer": {"name": optimizer, "lr": 0.1, "persist": True}}
    made = tiny.Finished(method, training=training)
    client, sent = CORPUS.clients[0], made.state
    assert np.any(sent[TABLE] != made.layout.views(made.before)[TABLE])
    assert not made.worker.train(made.flat, 2, [0])[0].error
    own = {name: tensor.numpy() for name, tensor in made.worker.room.stacks[1].tensors(0).items()}
    assert np.array_equal(own["embedding_received.weight"], sent[TABLE][client.rows_R])
    assert not np.array_equal(own[TABLE], own["embedding_received.weight"])
    for name in sent:
        if name.startswith("encoder."):
            assert np.array_equal(own[name.replace("encoder.", "encoder_received.")], sent[name])
            assert not np.array_equal(own[name], sent[name])
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
    constant = torch.zeros(2, 3)
    assert mmd(constant, constant).item() == 0


@pytest.mark.parametrize("model", [{}, {"dropout": 0.3}, {"name": "bag"}])
def test_fedmmd_without_its_weight_is_fedavg(model: dict[str, Any]) -> None:
    model = {"embedding": {"dim": 5}} | model
    expected = tiny.Finished("fedavg", model=model)
    made = tiny.Finished({"name": "fedmmd", "lambda_": 0}, model=model)
    assert np.array_equal(made.flat, expected.flat)
    assert made.rows[-1]["clients"] == expected.rows[-1]["clients"]
    assert not np.array_equal(tiny.Finished("fedmmd", model=model).flat, expected.flat)


def test_kteps_without_its_weights_is_independent_losses_of_what_each_architecture_leaves_common() -> None:
    common = ["encoder.rnn.bias_ih_l0", TABLE]
    for architecture, reached in (("classifier", [1, 1]), ("encoder", [0, 1]), ("everything", [0, 0])):
        method = KTEPS(lambda1=0, lambda2=0, architecture=architecture)  # type: ignore[arg-type]
        assert [grad is not None for grad in tiny.grads(method, "ce_private", common)] == [bool(n) for n in reached]
        assert all(grad is not None for grad in tiny.grads(method, "ce_shared", common))
        model, batch = tiny.model_and_batch(method)
        terms = KTEPS(architecture=architecture).loss(model, {}, batch)  # type: ignore[arg-type]
        assert set(terms) == {"ce_shared", "ce_private", "transfer", "diversity"}
        shared = method.probabilities(model, batch, "shared")
        assert torch.allclose(terms["ce_shared"], cross_entropy(shared.log(), batch.labels_B))


def test_the_shared_branch_learns_alike_beside_a_branch_that_is_private_altogether_as_without_it() -> None:
    with_private = tiny.Finished({"name": "kteps", "architecture": "everything", "lambda1": 0, "lambda2": 0})
    for seed in (1, 2):  # whatever the private branch is
        other = Worker(
            with_private.experiment,
            2,
            len(CORPUS.vocabulary),
            CORPUS.clients,
            {name: value + seed for name, value in with_private.private.items()},
        )
        payloads = [worker.train(with_private.before, 1, [0])[0].payload for worker in (with_private.worker, other)]
        assert np.array_equal(*payloads)


@pytest.mark.parametrize(
    ("method", "table"),
    [
        ("lg_fedavg", TABLE),
        ("pfl_da", "embedding_private.weight"),
        ({"name": "kteps", "architecture": "everything"}, "embedding_private.weight"),
    ],
)
def test_a_private_table_has_a_clients_own_rows_and_begins_as_the_common_one(method: Any, table: str) -> None:
    made = tiny.Finished(method)
    common = made.layout.views(made.before).get(TABLE, made.private.get(TABLE))
    assert np.array_equal(made.private[table], common)
    for client in CORPUS.clients:
        own = made.worker.private[client.id][table]
        assert own.shape == (len(client.rows_R), 5)
        assert not np.array_equal(own[: client.train_rows], common[client.rows_R[: client.train_rows]])
        assert np.array_equal(own[client.train_rows :], common[client.rows_R[client.train_rows :]])


def test_what_a_cut_model_reveals_and_by_what_it_can_be_chosen() -> None:
    assert any("no embedding table leaves a client" in said for said in reveals(tiny.experiment("lg_fedavg")))
    assert not any("wire.rows" in said for said in reveals(tiny.experiment("lg_fedavg")))
    assert any("wire.rows: own" in said for said in reveals(tiny.experiment("fedper")))
    assert any("asp_mtl: all training texts lie in one place" in said for said in reveals(tiny.experiment("asp_mtl")))
    experiment = tiny.experiment("fedper", tune={"metric": "Ag"})
    with pytest.raises(UserError, match="what fedper shares is no whole model: sort by Ap"):
        check_metric(experiment)
    check_metric(experiment, baseline=True)
