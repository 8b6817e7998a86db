"""KTEPS's architectures and what its paper compares it with, in limiting cases; every method's objective by hand."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.participants import participants
from fedtext.client.worker import Worker
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData
from fedtext.layout import TABLE, is_table
from fedtext.methods import APFL, ASPMTL, KTEPS, METHODS, PFLDA, Ditto, FedFusion, FedMMD, FedPer, LGFedAvg
from fedtext.methods.apfl import Clamped
from fedtext.methods.base import Method, Model
from fedtext.methods.pfl_da import mixture
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from fedtext.training.batches import by_task
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.TWO


@pytest.mark.parametrize(
    ("method", "private", "mirrors"),
    [
        (FedPer(), {"head"}, set()),
        (LGFedAvg(), {"embedding", "encoder"}, set()),
        (LGFedAvg(shared="encoder"), {"embedding"}, set()),
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
        (KTEPS(lambda2=0, projection=False), {"head_private"}, set()),
        (KTEPS(architecture="encoder", projection=False), {"head_private", "encoder_private"}, set()),
    ],
)
def test_what_is_shared(method: Method, private: set[str], mirrors: set[str]) -> None:
    names = [name for name, _ in method.network(Parts(RecurrentClassifier(), 2)).named_parameters()]
    kept = {name.partition(".")[0] for name in names if method.private(name) and not method.mirrors(name)}
    mirrored = {method.mirrors(name) for name in names if method.mirrors(name)}
    assert kept == private
    assert {name.partition(".")[0] for name in mirrored} == mirrors
    assert mirrored <= {name for name in names if not method.private(name)}


# Every method's objective in numbers of its own, of the smallest model: X_BV says which words of the vocabulary a text
# has, its features are ReLU(X E + b), and one linear layer reads them. Legend: B batch, V vocabulary, F features.
Numbers, Objective = Mapping[str, Tensor], Callable[..., Tensor]
LR, ROUNDS, EPOCHS = 0.2, 2, 2  # at a first step nothing has moved away from what was received


def linear(p: Numbers, name: str, inputs_BF: Tensor) -> Tensor:
    return inputs_BF @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def features(p: Numbers, x_BV: Tensor, encoder: str = "encoder", table: str = "embedding") -> Tensor:
    return torch.relu(x_BV @ p[f"{table}.weight"] + p[f"{encoder}.bias"])


def nll(probabilities_BC: Tensor, y_B: Tensor) -> Tensor:
    return -probabilities_BC[torch.arange(len(y_B)), y_B].log().mean()


def squares(o_BF: Tensor) -> Tensor:
    return (o_BF[:, None] - o_BF).square().sum(2)


def plain(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    return nll(linear(p, "head.0", features(p, x_BV)).softmax(1), y_B)


def proximal(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    away = sum((p[name] - received[name]).square().sum() for name in received)
    return plain(p, received, x_BV, y_B, task) + 0.3 / 2 * away


def renamed(p: Numbers, suffix: str = "_private") -> Numbers:
    """Each model's numbers by the names of the shared one's."""
    parts = {name: name.partition(".") for name in p}
    return {part.removesuffix(suffix) + "." + rest: p[n] for n, (part, _, rest) in parts.items() if suffix in part}


def held_near(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    own = renamed(p)
    away = sum((own[name] - received[name]).square().sum() for name in own)
    return plain(p, received, x_BV, y_B, task) + plain(own, received, x_BV, y_B, task) + 0.6 / 2 * away


def half_mixed(
    p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int, share: float | None = None
) -> Tensor:
    own, learnt = renamed(p), p["alpha_private.value"]
    alpha: Tensor | float = stopped(learnt) if share is None else share
    shared = {name: p[name].detach() for name in own if name in p}
    both = {name: alpha * own[name] + (1 - alpha) * tensor for name, tensor in shared.items()}
    return plain(p, received, x_BV, y_B, task) + plain(both, received, x_BV, y_B, task)


def stopped(value: Tensor) -> Tensor:
    """A weight in [0, 1] that does not move further out."""
    same = 1 * value
    if same.requires_grad:
        same.register_hook(lambda g: g * ~(((value >= 1) & (g < 0)) | ((value <= 0) & (g > 0))))
    return same + (same.clamp(0, 1) - same).detach()


def test_the_weight_of_a_mixture_stops_at_its_bounds_and_leaves_them() -> None:
    value = torch.tensor([1.2, 1.2, -0.3, -0.3, 0.4, 1.0, 0.0], requires_grad=True)
    clamped: Tensor = Clamped.apply(value)  # type: ignore[no-untyped-call]
    clamped.backward(torch.tensor([-1.0, 1.0, 1.0, -1.0, 2.0, -1.0, 1.0]))
    assert clamped.tolist() == pytest.approx([1, 1, 0, 0, 0.4, 1, 0])
    assert value.grad is not None
    assert value.grad.tolist() == [0, 1, 0, -1, 2, 0, 0]


def fused(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    f_l_BF, f_g_BF = features(p, x_BV), features(received, x_BV)
    if "fusion.gamma" not in p:
        both_BF = linear(p, "fusion", torch.cat([f_l_BF, f_g_BF], 1))
    else:
        both_BF = p["fusion.gamma"] * f_g_BF + (1 - p["fusion.gamma"]) * f_l_BF
    return nll(linear(p, "head.0", both_BF).softmax(1), y_B)


def discrepant(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    size, d_NN = len(y_B), squares(torch.cat([features(p, x_BV), features(received, x_BV)]))
    b = d_NN.detach().sum() / (2 * size * (2 * size - 1))
    kernel_NN = sum((torch.exp(-d_NN / (b * width)) for width in (1 / 4, 1 / 2, 1, 2, 4)), torch.zeros(()))
    sides_N = torch.tensor([1 / size] * size + [-1 / size] * size, dtype=b.dtype)
    return plain(p, received, x_BV, y_B, task) + 0.7 * sides_N @ kernel_NN @ sides_N


def mixed(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int, weight: float = 0) -> Tensor:
    own_BF = features(p, x_BV, "encoder_private", "embedding_private")
    m_s_BC = linear(p, "head.0", features(p, x_BV)).softmax(1)
    m_p_BC, alpha_B1 = linear(p, "head_private.0", own_BF).softmax(1), linear(p, "gate_private", own_BF).sigmoid()
    return nll(alpha_B1 * m_s_BC + (1 - alpha_B1) * m_p_BC, y_B) + weight * nll(m_s_BC, y_B)


def transferred(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int, printed: bool = True) -> Tensor:
    o_BF, size = features(p, x_BV), len(y_B)
    o_s_BF, o_p_BF = linear(p, "projection_shared", o_BF), linear(p, "projection_private", o_BF)
    g_s_BC, g_p_BC = linear(p, "head_shared.0", o_s_BF), linear(p, "head_private.0", o_p_BF)
    q_BC, p_BC = (g_s_BC.detach() / 0.5).softmax(1), g_p_BC.softmax(1)
    transfer_BC = p_BC * q_BC.log() if printed else q_BC * p_BC.log()
    h_BB, pairs = torch.eye(size, dtype=o_BF.dtype) - 1 / size, torch.triu_indices(size, size, 1).unbind()
    l_s_BB, l_p_BB = (torch.exp(-d_BB / d_BB[pairs].median().detach()) for d_BB in map(squares, (o_s_BF, o_p_BF)))
    diversity = torch.trace(l_s_BB @ h_BB @ l_p_BB @ h_BB) / (size - 1) ** 2
    entropies = nll(g_s_BC.softmax(1), y_B) + nll(p_BC, y_B)
    return entropies - 0.4 * transfer_BC.sum(1).mean() + 0.6 * diversity


def unprojected(p: Numbers, received: Numbers, x_BV: Tensor, y_B: Tensor, task: int) -> Tensor:
    """Table 8's architecture B: no projections, no diversity, an encoder for each branch."""
    g_s_BC = linear(p, "head_shared.0", features(p, x_BV))
    p_BC = linear(p, "head_private.0", features(p, x_BV, "encoder_private")).softmax(1)
    transfer_BC = p_BC * (g_s_BC.detach() / 0.5).softmax(1).log()
    return nll(g_s_BC.softmax(1), y_B) + nll(p_BC, y_B) - 0.4 * transfer_BC.sum(1).mean()


def summed(penalised_FF: Tensor) -> Tensor:
    return penalised_FF.square().sum()


def adversarial(
    p: Numbers,
    received: Numbers,
    x_BV: Tensor,
    y_B: Tensor,
    task: int,
    diff: float = 2.5,
    penalty: Callable[[Tensor], Tensor] = lambda penalised_FF: penalised_FF.square().mean(),
) -> Tensor:
    """As all minimise it but the discriminator, which maximises it."""
    s_BF, p_BF = features(p, x_BV), features(p, x_BV, f"encoders.{task}")
    told = nll(linear(p, "discriminator", s_BF).softmax(1), torch.full_like(y_B, task))
    s_unit, p_unit = (c / c.norm(dim=1, keepdim=True) for c in (o - o.mean(0) for o in (s_BF, p_BF)))
    logits_BC = linear(p, f"heads.{task}.0", torch.cat([s_BF, p_BF], 1))
    return nll(logits_BC.softmax(1), y_B) - 0.5 * told + diff * penalty(s_unit.T @ p_unit)


KTEPS_WEIGHTS = {"name": "kteps", "lambda1": 0.4, "lambda2": 0.6, "temperature": 0.5}
BY_HAND: list[tuple[dict[str, Any], Objective]] = [
    *(({"name": name}, plain) for name in ("fedavg", "fedsgd", "fedper", "lg_fedavg", "local_only", "pooled")),
    ({"name": "fedatt", "step": 1.3}, plain),
    ({"name": "fedprox", "mu": 0.3}, proximal),
    *(({"name": "fedfusion", "operator": operator}, fused) for operator in ("multi", "single", "conv")),
    ({"name": "fedmmd", "lambda": 0.7}, discrepant),
    ({"name": "pfl_da"}, mixed),
    ({"name": "pfl_da", "shared_loss": 0.8}, partial(mixed, weight=0.8)),
    (KTEPS_WEIGHTS, transferred),
    (KTEPS_WEIGHTS | {"distillation": "standard"}, partial(transferred, printed=False)),
    (KTEPS_WEIGHTS | {"lambda2": 0, "projection": False, "architecture": "encoder"}, unprojected),
    ({"name": "ditto", "lambda": 0.6}, held_near),
    ({"name": "apfl"}, half_mixed),
    ({"name": "apfl", "adaptive": False, "alpha": 0.3}, partial(half_mixed, share=0.3)),
    ({"name": "asp_mtl", "adv": 0.5, "diff": 2.5}, adversarial),
    ({"name": "asp_mtl", "adv": 0.5, "diff": 0.1, "penalty": "sum"}, partial(adversarial, diff=0.1, penalty=summed)),
]
NAMES = ["-".join(map(str, options.values())) for options, _ in BY_HAND]


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


def attentive(w: Tensor, ends: list[Tensor]) -> Tensor:
    alphas = torch.stack([(w - end).norm() for end in ends]).softmax(0)
    return w - 1.3 * sum(alpha * (w - end) for alpha, end in zip(alphas, ends, strict=True))


def descend(
    objective: Objective, received: Numbers, client: ClientData, round_: int, experiment: Experiment
) -> Numbers:
    """What a client has after its turn, of one batch an epoch, or of one for each task in the order that was drawn."""
    texts, size, p = client.train, len(client.train), received
    x_NV = torch.zeros(size, len(CORPUS.vocabulary), dtype=torch.float64)
    x_NV[np.repeat(np.arange(size), np.diff(texts.offsets)), client.rows_R[texts.tokens_T]] = 1
    x_NV = x_NV[:, 1:]  # a bag has no <pad>
    tasks_N = texts.tasks_N if experiment.method.separates else np.zeros(size, int)
    for batch in by_task(tasks_N, 99, experiment.training.local_epochs, 0, round_, client.id):
        p = {name: tensor.detach().requires_grad_() for name, tensor in p.items()}
        loss = objective(p, received, x_NV[batch], torch.from_numpy(texts.labels_N)[batch], tasks_N[batch[0]])
        grads = torch.autograd.grad(loss, list(p.values()), allow_unused=True, materialize_grads=True)
        steps = [-LR if name.startswith("discriminator") else LR for name in p]
        p = {name: p[name] - step * grad for name, step, grad in zip(p, steps, grads, strict=True)}
    return {name: tensor.detach() for name, tensor in p.items()}


class NothingPrivate(FedPer):
    def private(self, parameter: str) -> bool:
        return False


def test_fedper_whose_private_set_is_empty_is_fedavg() -> None:
    assert np.array_equal(tiny.Finished(NothingPrivate()).flat, tiny.Finished("fedavg").flat)
    assert not np.array_equal(tiny.Finished(FedPer()).state[TABLE], tiny.Finished("fedavg").state[TABLE])


@pytest.mark.parametrize("method", ["fedper", "lg_fedavg"])
def test_a_cut_model_is_read_with_the_clients_own_part_and_has_no_ag(method: str) -> None:
    made = tiny.Finished(method)
    assert [set(record.clients["client0"]) for record in made.rows] == [{"Ap_0"}, {"Ap_0", "Ap"}]
    sure = {"head.2.bias": np.array([0, 99], np.float32)}  # by this head all texts are of the second class
    if method == "fedper":
        made.worker.private[0] |= sure
    else:
        made.layout.views(made.flat)["head.2.bias"][:] = sure["head.2.bias"]
    scores = made.worker.evaluate(made.flat, 2, [0], final=False)
    assert scores[0].metrics == {"Ap_0": pytest.approx(CORPUS.clients[0].test.labels_N.mean())}


@pytest.mark.parametrize("method", ["ditto", "apfl"])
def test_a_personal_model_begins_as_the_shared_one(method: str) -> None:
    shared, private = initial(tiny.experiment(method), CORPUS)
    own = renamed({name: torch.from_numpy(tensor) for name, tensor in private.items()})
    assert all(nonempty(np.array_equal(own[name], tensor) for name, tensor in shared.items()))


@pytest.mark.parametrize(
    ("method", "learnt", "share"),
    [
        (Ditto(), None, 1.0),
        (APFL(), 0.3, 0.3),
        (APFL(), 1.5, 1.0),  # it is held within [0, 1]
        (APFL(), -0.5, 0.0),
        (APFL(adaptive=False, alpha=0.0), 0.3, 0.0),
        (APFL(adaptive=False, alpha=0.7), 0.3, 0.7),
        (APFL(adaptive=False, alpha=1.0), 0.3, 1.0),
    ],
    ids=str,
)
def test_a_client_uses_the_shared_model_its_own_or_what_lies_between(
    method: Ditto | APFL, learnt: float | None, share: float
) -> None:
    model, batch = tiny.model_and_batch(method)
    if learnt is not None:
        model.parameters["alpha_private.value"] = torch.tensor([learnt], dtype=torch.float64)
    own = renamed(model.parameters)
    for inference, alpha in (("shared", 0.0), ("private", 1.0), ("both", share)):
        mixed = {n: alpha * own[n] + (1 - alpha) * t for n, t in model.parameters.items() if "_private" not in n}
        expected = Model(model.network, model.parameters | mixed)(batch).softmax(1)
        found = method.probabilities(model, batch, inference)  # type: ignore[arg-type]
        assert torch.allclose(found, expected, atol=1e-12), inference
    assert not torch.allclose(found, model(batch).softmax(1)) or share == 0


def test_pfl_da_by_hand() -> None:
    g_s, g_p = torch.tensor([[0.0, math.log(3)]]), torch.tensor([[math.log(4), 0.0]])  # 1/4, 3/4 and 4/5, 1/5
    log_BC = mixture(g_s, g_p, torch.tensor([math.log(3)]))  # alpha = 3/4
    assert log_BC.exp()[0].tolist() == pytest.approx([0.75 * 0.25 + 0.25 * 0.8, 0.75 * 0.75 + 0.25 * 0.2])
    for gate, expected in ((200.0, [0.25, 0.75]), (-200.0, [0.8, 0.2]), (0.0, [0.525, 0.475])):
        assert mixture(g_s, g_p, torch.tensor([gate])).exp()[0].tolist() == pytest.approx(expected)


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


def test_kteps_without_its_weights_is_independent_losses_of_what_each_architecture_leaves_common() -> None:
    common = ["encoder.rnn.bias_ih_l0", TABLE]
    for architecture, reached in (("classifier", [1, 1]), ("encoder", [0, 1]), ("everything", [0, 0])):
        method = KTEPS(lambda1=0, lambda2=0, architecture=architecture)  # type: ignore[arg-type]
        assert [grad is not None for grad in tiny.grads(method, "ce_private", common)] == [bool(n) for n in reached]
        assert all(nonempty(grad is not None for grad in tiny.grads(method, "ce_shared", common)))
        model, batch = tiny.model_and_batch(method)
        terms = KTEPS(architecture=architecture).loss(model, {}, batch)  # type: ignore[arg-type]
        assert set(terms) == {"ce_shared", "ce_private", "transfer", "diversity"}
        shared = method.probabilities(model, batch, "shared")
        assert torch.allclose(terms["ce_shared"], cross_entropy(shared.log(), batch.labels_B))


def test_without_projections_one_encoder_has_no_diversity_and_two_have() -> None:
    for architecture in ("encoder", "everything"):
        method = KTEPS(projection=False, architecture=architecture)  # type: ignore[arg-type]
        model, batch = tiny.model_and_batch(method)
        _, _, o_s_BF, o_p_BF = model(batch)
        assert not torch.equal(o_s_BF, o_p_BF)
        assert "diversity" in method.loss(model, {}, batch)
    model, batch = tiny.model_and_batch(KTEPS(projection=False, lambda2=0))
    _, _, o_s_BF, o_p_BF = model(batch)
    assert torch.equal(o_s_BF, o_p_BF)
    with pytest.raises(ValueError, match=r"both branches have the same features.*set lambda2 to 0, or architecture"):
        KTEPS(projection=False)


def test_the_shared_branch_learns_alike_beside_a_branch_that_is_private_altogether_as_without_it() -> None:
    with_private = tiny.Finished({"name": "kteps", "architecture": "everything", "lambda1": 0, "lambda2": 0})
    for seed in (1, 2):  # whatever the private branch is
        other = Worker(
            with_private.experiment,
            CORPUS,
            CORPUS.clients,
            {name: value + seed for name, value in with_private.private.items()},
        )
        payloads = [worker.train(with_private.before, 1, [0])[0].payload for worker in (with_private.worker, other)]
        assert np.array_equal(*payloads)
