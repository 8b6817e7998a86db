"""State of clients and server: SCAFFOLD and FedDyn by hand, and against their papers' algorithms."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtext.corpora.types import ClientData
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.methods import FedDyn, Scaffold
from fedtext.methods.state import Local, State, Tensors, flat, grouped, shapes_of
from fedtext.server.federation import Federation
from tests.fedtext.methods.stateful import ALPHA, CORPUS, EPOCHS, HALF, LR, ROUNDS, configured, trained
from tests.loops import nonempty

Numbers = Mapping[str, Tensor]


def one(value: float) -> Tensors:
    return Tensors(w=torch.tensor([value], dtype=torch.float64))


def test_arithmetic_is_name_by_name() -> None:
    a, b = Tensors(v=torch.tensor([1.0, 2.0]), w=torch.tensor([3.0])), {"w": torch.tensor([4.0])}
    assert {name: tensor.tolist() for name, tensor in (a + b).items()} == {"v": [1, 2], "w": [7]}
    assert {name: tensor.tolist() for name, tensor in (a - b).items()} == {"v": [1, 2], "w": [-1]}
    assert {name: tensor.tolist() for name, tensor in (2 * a / 4).items()} == {"v": [0.5, 1], "w": [1.5]}
    assert {name: tensor.tolist() for name, tensor in (-a * 3).items()} == {"v": [-3, -6], "w": [-9]}
    assert {name: tensor.tolist() for name, tensor in a.zeros().items()} == {"v": [0, 0], "w": [0]}
    assert grouped(flat({"c": a, "d": Tensors(b)})) == {"c": a, "d": b}
    assert {type(made) for made in (a + b, a - b, 2 * a, a / 2, -a, a.zeros())} == {Tensors}


def test_a_group_with_a_slash_in_its_name_is_refused() -> None:
    with pytest.raises(UserError, match="state has a group 'a/b': choose a name without a slash"):
        flat({"a": one(1), "a/b": one(2)})


def test_a_number_that_is_called_as_the_table_is_refused() -> None:
    shapes = {TABLE: (9, 2), "head.weight": (3, 2)}
    assert shapes_of(lambda shared: {"c": shared}, shapes) == {f"c/{name}": shape for name, shape in shapes.items()}
    with pytest.raises(UserError, match=r"a method's tau/embedding.weight is called as the embedding table"):
        shapes_of(lambda shared: {"tau": Tensors({name: torch.zeros(()) for name in shared})}, shapes)


def test_the_mean_gradient_is_what_the_steps_took_and_zero_where_nothing_moves() -> None:
    received = Tensors(w=torch.tensor([1.0, 2.0]), still=torch.tensor([5.0]))
    now = Tensors(w=torch.tensor([0.5, 4.0]), still=torch.tensor([5.0]), own=torch.tensor([7.0]))
    found = 2 * Local(received, {}, {}, now, 1, {"w": 0.25, "still": 0.0}).mean_gradient
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"w": [4, -16], "still": [0]}


def test_scaffold_on_two_parabolas_by_hand() -> None:
    """f_1 = (w - 1)^2 / 2 and f_2 = (w + 3)^2 / 2, two steps of rate 0.1 from w = 0 in each of two rounds.

    Round 1, all c are 0: client 1 goes 0, 0.1, 0.19 (gradients -1, -0.9), client 2 0, -0.3, -0.57 (3, 2.7): c_1 =
    -0.95, c_2 = 2.85, c = 0.95, w = -0.19. Round 2, client 1 steps along w - 1 + 0.95 + 0.95: by 0.71, to -0.261, then
    by 0.639, to -0.3249; its gradients were -1.19 and -1.261, so that c_1 = -1.2255. Client 2 alone is away: half of
    the change of c_1 goes into c, 0.95 - 0.27550 / 2 = 0.81225, and w = -0.3249."""
    method, w, c = Scaffold(), 0.0, {"c": one(0)}
    own: dict[int, State] = {1: method.client_state(one(0)), 2: method.client_state(one(0))}
    expected = [(-0.19, {1: -0.95, 2: 2.85}, 0.95), (-0.3249, {1: -1.2255, 2: 2.85}, 0.81225)]
    for cohort, (after, c_k, server) in zip(([1, 2], [1]), expected, strict=True):
        deltas, extras = [], []
        for k in cohort:
            local = Local(one(w), own[k], c, one(w), 1, {})
            y = w
            for _ in range(2):
                slope = one(y - 1 if k == 1 else y + 3)
                y -= 0.1 * float(method.gradient(slope, local)["w"])
            done = Local(one(w), own[k], c, one(y), 1, {"w": 0.2})
            own[k], sent = method.after_update(done)
            deltas.append(y - w)
            extras.append(float(sent["delta_c"]["w"]))
        mean, sent_mean = one(sum(deltas) / len(cohort)), {"delta_c": one(sum(extras) / len(cohort))}
        c, change = method.server_step(c, mean, sent_mean, len(cohort) / 2)  # type: ignore[assignment]
        w += float(change["w"])
        assert w == pytest.approx(after)
        assert {k: float(state["c_k"]["w"]) for k, state in own.items()} == pytest.approx(c_k)
        assert float(c["c"]["w"]) == pytest.approx(server)


def test_feddyn_on_two_parabolas_by_hand() -> None:
    """The same parabolas, one step of rate 0.1, alpha 0.5. Round 1: deltas 0.1 and -0.3, h_1 = -0.05, h_2 = 0.15; h =
    0.5 * 0.1 = 0.05, and w = -0.1 - 0.05 / 0.5 = -0.2. Round 2, client 1 alone: it steps along -1.2 + 0.05 = -1.15, by
    0.115, and h_1 = -0.1075; h = 0.05 - 0.5 * 0.5 * 0.115 = 0.02125, and w = -0.2 + 0.115 - 0.0425 = -0.1275."""
    method, w, h = FedDyn(alpha=0.5), 0.0, {"h": one(0)}
    own: dict[int, State] = {1: method.client_state(one(0)), 2: method.client_state(one(0))}
    expected = [(-0.2, {1: -0.05, 2: 0.15}, 0.05), (-0.1275, {1: -0.1075, 2: 0.15}, 0.02125)]
    for cohort, (after, h_k, server) in zip(([1, 2], [1]), expected, strict=True):
        deltas = []
        for k in nonempty(cohort):
            local = Local(one(w), own[k], {}, one(w), 1, {})
            y = w - 0.1 * float(method.gradient(one(w - 1 if k == 1 else w + 3), local)["w"])
            own[k], sent = method.after_update(Local(one(w), own[k], {}, one(y), 1, {}))
            assert sent == {}
            deltas.append(y - w)
        h, change = method.server_step(h, one(sum(deltas) / len(cohort)), {}, len(cohort) / 2)  # type: ignore
        w += float(change["w"])
        assert w == pytest.approx(after)
        assert {k: float(state["h_k"]["w"]) for k, state in own.items()} == pytest.approx(h_k)
        assert float(h["h"]["w"]) == pytest.approx(server)
    pulled = method.gradient(one(1), Local(one(w), {"h_k": one(2)}, {}, one(w + 4), 1, {}))
    assert float(pulled["w"]) == pytest.approx(1 - 2 + 0.5 * 4)


def words_of(client: ClientData) -> Tensor:
    texts = client.train
    x_NV = torch.zeros(len(texts), len(CORPUS.vocabulary), dtype=torch.float64)
    x_NV[np.repeat(np.arange(len(texts)), np.diff(texts.offsets)), client.rows_R[texts.tokens_T]] = 1
    return x_NV[:, 1:]  # a bag has no <pad>


def slopes(p: Numbers, client: ClientData) -> dict[str, Tensor]:
    """The gradient of the mean cross-entropy of all of a client's texts."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in p.items()}
    features = torch.relu(words_of(client) @ leaves["embedding.weight"] + leaves["encoder.bias"])
    logits = features @ leaves["head.0.weight"].T + leaves["head.0.bias"]
    loss = cross_entropy(logits, torch.from_numpy(client.train.labels_N))
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def cohorts(federation: Federation) -> Iterator[Sequence[int]]:
    for round_ in range(1, ROUNDS + 1):
        yield federation._sample(round_).clients


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize(("weights", "participation"), [("uniform", {}), ("samples", {}), ("samples", HALF)])
def test_scaffold_in_a_federation(momentum: float, weights: str, participation: dict[str, Any]) -> None:
    """Against the paper's algorithm 1 in float64: c_k is the mean of the gradients, of which the last of n steps with
    momentum m enters an update once, the one before it 1 + m times, and so on."""
    experiment = configured("scaffold", momentum, server={"weights": weights}, participation=participation)
    federation, fleet, x = trained(experiment)
    share = [0.5, 0.5] if weights == "uniform" else [len(client.train) / 27 for client in CORPUS.clients]
    assert sum(share) == 1
    zeros = {name: torch.zeros_like(tensor) for name, tensor in x.items()}
    c, own, came = zeros, {0: zeros, 1: zeros}, set()
    for cohort in cohorts(federation):
        came |= set(cohort)
        ends, changes = {}, {}
        for k in cohort:
            y, velocity, seen = x, zeros, []
            for _ in range(EPOCHS):
                seen.append(slopes(y, CORPUS.clients[k]))
                velocity = {n: momentum * velocity[n] + seen[-1][n] - own[k][n] + c[n] for n in x}
                y = {n: y[n] - LR * velocity[n] for n in x}
            ends[k] = y
            counts = [sum(momentum**i for i in range(EPOCHS - step)) for step in range(EPOCHS)]
            mean = {n: sum(w * g[n] for w, g in zip(counts, seen, strict=True)) / sum(counts) for n in x}
            changes[k] = {n: mean[n] - own[k][n] for n in x}
            own[k] = mean  # type: ignore[assignment]
        there = sum(share[k] for k in cohort)
        x = {n: x[n] + sum(share[k] * (ends[k][n] - x[n]) for k in cohort) / there for n in x}
        c = {n: c[n] + sum(share[k] * changes[k][n] for k in cohort) for n in x}
    assert came == {0, 1}
    for name in nonempty(x):
        assert np.allclose(federation.state[name], x[name], atol=3e-6), name
        assert np.allclose(federation.step.method_state.tensors[f"c/{name}"], c[name], atol=3e-6), name
        for client in nonempty(CORPUS.clients):
            assert np.allclose(fleet.worker.private[client.id][f"#state/c_k/{name}"], own[client.id][name], atol=3e-6)


@pytest.mark.parametrize("participation", [{}, HALF])
def test_feddyn_in_a_federation(participation: dict[str, Any]) -> None:
    """Against the paper's algorithm 1 in float64, with uniform weights."""
    method = {"name": "feddyn", "alpha": ALPHA}
    federation, fleet, x = trained(configured(method, server={"weights": "uniform"}, participation=participation))
    zeros = {name: torch.zeros_like(tensor) for name, tensor in x.items()}
    h, own = zeros, {0: zeros, 1: zeros}
    for cohort in cohorts(federation):
        ends = {}
        for k in cohort:
            y = x
            for _ in range(EPOCHS):
                g = slopes(y, CORPUS.clients[k])
                y = {n: y[n] - LR * (g[n] - own[k][n] + ALPHA * (y[n] - x[n])) for n in x}
            ends[k] = y
            own[k] = {n: own[k][n] - ALPHA * (y[n] - x[n]) for n in x}
        h = {n: h[n] - ALPHA / 2 * sum(ends[k][n] - x[n] for k in cohort) for n in x}
        x = {n: sum(ends[k][n] for k in cohort) / len(cohort) - h[n] / ALPHA for n in x}
    for name in nonempty(x):
        assert np.allclose(federation.state[name], x[name], atol=3e-6), name
        assert np.allclose(federation.step.method_state.tensors[f"h/{name}"], h[name], atol=3e-6), name
        for client in nonempty(CORPUS.clients):
            rows = client.rows_R[1:] - 1 if name == "embedding.weight" else slice(None)
            kept = fleet.worker.private[client.id][f"#state/h_k/{name}"]
            assert np.allclose(kept, own[client.id][name][rows], atol=3e-6), name
