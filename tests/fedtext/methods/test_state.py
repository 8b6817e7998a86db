"""Methods with state of clients and server: two clients by hand, and what becomes of the state."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.numpy import load
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtext.client.local_fleet import LocalFleet
from fedtext.corpora.types import ClientData
from fedtext.layout import TABLE
from fedtext.ledger import ledger
from fedtext.ledger.report import reveals
from fedtext.methods import FedAvg, FedDyn, Scaffold
from fedtext.methods.state import Local, State, Tensors, flat, grouped
from fedtext.parameters import initial, shared_numbers
from fedtext.server.federation import Federation
from fedtext.state.checkpoint import Checkpoints
from fedtext.testing.runs import Recording, final
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.TWO
LR, EPOCHS, ROUNDS, ALPHA = 0.2, 3, 3, 0.3
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


def configured(method: Any, momentum: float = 0.0, **changes: Any) -> Any:
    training = {"rounds": ROUNDS, "local_epochs": EPOCHS, "batch_size": 99}
    training |= {"optimizer": {"lr": LR, "momentum": momentum}}
    model = {"name": "bag", "embedding": {"dim": 5}, "hidden": ()}
    base = {"model": model, "training": training, "evaluation": {"personalize": None}}
    return tiny.experiment(method, **base | changes)


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


def trained(experiment: Any) -> tuple[Federation, LocalFleet, dict[str, Tensor]]:
    rng = np.random.default_rng(2)
    shared, private = (
        {name: np.float32(0.5) * rng.standard_normal(tensor.shape, np.float32) for name, tensor in part.items()}
        for part in initial(experiment, CORPUS)
    )
    fleet = LocalFleet(experiment, CORPUS, private)
    federation = Federation(experiment, shared, fleet, None)
    list(federation.run())
    return federation, fleet, {name: torch.from_numpy(tensor).double() for name, tensor in shared.items()}


def cohorts(federation: Federation) -> Iterator[Sequence[int]]:
    for round_ in range(1, ROUNDS + 1):
        yield federation._sample(round_)


HALF = {"fraction": 0.5}


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
        assert np.allclose(federation.beside.tensors[f"c/{name}"], c[name], atol=3e-6), name
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
        assert np.allclose(federation.beside.tensors[f"h/{name}"], h[name], atol=3e-6), name
        for client in nonempty(CORPUS.clients):
            rows = client.rows_R[1:] - 1 if name == "embedding.weight" else slice(None)
            kept = fleet.worker.private[client.id][f"#state/h_k/{name}"]
            assert np.allclose(kept, own[client.id][name][rows], atol=3e-6), name


CLIP, GAUSSIAN = {"clip": {"norm": 0.05}}, {"gaussian": {"sigma": 0.01}}
BITS = [{"quantize": {"q": 0.1}}, {"randomized_response": {"epsilon": 1.0}}]
UPLINKS = {"clip": [CLIP], "noise": [CLIP, GAUSSIAN], "bits": BITS}


@pytest.mark.parametrize("uplink", UPLINKS)
@pytest.mark.parametrize("participation", [{}, HALF], ids=["all", "half"])
@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("method", ["scaffold", "feddyn"])
def test_states_follow_what_is_sent(method: str, weights: str, participation: dict[str, Any], uplink: str) -> None:
    """The server's state is the mean of the clients' whatever mechanisms make of what clients send. In embedding rows
    of words that a client of feddyn does not have, only noise is sent, and no state is kept."""
    server = {"weights": weights}
    experiment = configured(method, server=server, participation=participation, uplink=UPLINKS[uplink])
    federation, fleet, x = trained(experiment)
    plain, _, _ = trained(configured(method, server=server, participation=participation))
    group, own = {"scaffold": ("c", "c_k"), "feddyn": ("h", "h_k")}[method]
    share = [0.5, 0.5] if weights == "uniform" else [12 / 27, 15 / 27]
    for name in nonempty(x):
        if name == TABLE and method == "feddyn" and uplink != "clip":
            continue
        kept = federation.beside.tensors[f"{group}/{name}"].astype(np.float64)
        mean = np.zeros_like(kept)
        for client, weight in zip(CORPUS.clients, share, strict=True):
            state = fleet.worker.private[client.id][f"#state/{own}/{name}"]
            rows = fleet.worker.clients[client.id].rows_R if name == TABLE else slice(None)
            mean[rows] += weight * state.astype(np.float64)
        assert np.abs(kept - mean).max() < 1e-6, name
        assert np.abs(kept).max() > 1e-4, name
        assert not np.allclose(kept, plain.beside.tensors[f"{group}/{name}"], rtol=0.01, atol=1e-5), name


@pytest.mark.parametrize("rows", ["own", "all"])
def test_a_client_of_feddyn_follows_its_shortened_update_in_its_own_rows(rows: str) -> None:
    """One round: h_k is -alpha times the payload, in the client's own rows, which are a part of the table."""
    shared, private = initial(experiment := configured("feddyn", uplink=[CLIP], wire={"rows": rows}), CORPUS)
    fleet = Recording(experiment, CORPUS, private)
    next(Federation(experiment, shared, fleet, None).run())
    for reply in nonempty(fleet.received):
        sent = load(reply.payload.tobytes())
        table = np.zeros_like(shared[TABLE])
        table[sent.get("#rows", slice(None))] = sent[TABLE]
        client = fleet.worker.clients[reply.client]
        kept = fleet.worker.private[reply.client]
        assert len(client.rows_R) < len(table)
        assert np.array_equal(kept[f"#state/h_k/{TABLE}"], -np.float32(FedDyn().alpha) * table[client.rows_R])
        assert np.array_equal(kept["#state/h_k/head.0.bias"], -np.float32(FedDyn().alpha) * sent["head.0.bias"])
        assert np.any(kept[f"#state/h_k/{TABLE}"])


@pytest.mark.parametrize("method", ["scaffold", "feddyn"])
def test_state_is_checkpointed_and_not_sent(method: str, tmp_path: Path) -> None:
    experiment = configured(method, participation=HALF)
    whole = final(experiment, CORPUS)
    final(experiment, CORPUS, tmp_path, rounds=2)
    kept = Checkpoints(tmp_path, "").folder / "round-000002" / "server-optimizer.safetensors"
    (group,) = {name.split("/")[1] for name in load(kept.read_bytes())}
    assert group == {"scaffold": "c", "feddyn": "h"}[method]
    assert final(experiment, CORPUS, tmp_path) == whole
    shared = initial(experiment, CORPUS)[0]
    federation = tiny.federation(experiment, CORPUS, Recording)
    fleet = federation.fleet
    for record in nonempty(federation.run()):
        (reply,) = fleet.received
        sent = {name for name in load(reply.payload.tobytes()) if name[0] != "#"}
        extras = {f"delta_c/{name}" for name in shared} if method == "scaffold" else set()
        assert sent == set(shared) | extras
        down = record.metrics["bytes_down"]
        assert (down > 4 * 2 * sum(tensor.size for tensor in shared.values())) == (method == "scaffold")


def test_mechanisms_and_ledger_cover_what_is_sent_beside_an_update() -> None:
    """A clip bounds both as one vector, noise lies on both, and randomised response is counted over both."""
    clip = [{"clip": {"norm": 0.01}}]
    experiment = configured("scaffold", uplink=clip)
    shared = initial(experiment, CORPUS)[0]
    federation = tiny.federation(experiment, CORPUS, Recording)
    fleet = federation.fleet
    next(federation.run())
    for reply in nonempty(fleet.received):
        sent = {name: tensor for name, tensor in load(reply.payload.tobytes()).items() if name[0] != "#"}
        assert sum(np.square(tensor).sum(dtype=np.float64) for tensor in sent.values()) ** 0.5 == pytest.approx(0.01)
        assert all(nonempty(np.any(sent[f"delta_c/{name}"]) for name in shared))
    count = sum(tensor.size for tensor in shared.values())
    assert federation.coordinates == 2 * count
    assert shared_numbers(experiment, CORPUS.classes, 2, len(CORPUS.vocabulary)) == 2 * count
    told = "beside its update a client sends delta_c (method scaffold)"
    assert any(told in sentence for sentence in reveals(experiment))
    assert not any(nonempty("beside its update" in sentence for sentence in reveals(configured("feddyn"))))
    noisy = configured("scaffold", uplink=[{"quantize": {"q": 0.1}}, {"randomized_response": {"epsilon": 1.0}}])
    federation, fleet, _ = trained(noisy)
    entries = ledger(noisy, federation.coordinates, 2, 1)
    assert {entry.epsilon for entry in entries if entry.unit == "client and round"} == {2 * count}
    assert np.isfinite(federation.flat).all()


def test_noise_of_the_server_lies_on_the_mean_of_the_extras_too() -> None:
    clipped: dict[str, Any] = {"uplink": [{"clip": {"norm": 0.1}}], "server": {"weights": "uniform"}}
    noise = {"server": clipped["server"] | {"noise": {"multiplier": 1.0}}}
    federation, _, _ = trained(configured("scaffold", **clipped | noise))
    quiet, _, _ = trained(configured("scaffold", **clipped))
    for name, tensor in nonempty(federation.beside.tensors.items()):
        apart = tensor - quiet.beside.tensors[name]
        assert np.all(apart != 0), name


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("scaffold", {"training": {"optimizer": "adam"}}, "training.optimizer: method scaffold computes the mean gradient"),
    ("scaffold", {"training": {"optimizer": {"name": "sgd", "persist": True}}}, "training.optimizer.persist"),
    (
        "scaffold",
        {"training": {"optimizer": {"name": "sgd", "clip_norm": 1.0}}},
        "training.optimizer.clip_norm",
    ),
    ("scaffold", {"wire": {"rows": "own"}}, "wire.rows: own leaves out the words"),
    ("scaffold", {"server": {"aggregation": "median"}}, "server.aggregation: median compares updates"),
    ("scaffold", {"server": {"aggregation": {"norm_bounded": {"norm": 1.0}}}}, "norm_bounded scales updates on the"),
    ("scaffold", {"corpus": {"name": "demo", "own_vocabularies": True}}, "corpus.own_vocabularies"),
    ("feddyn", {"audits": ["gradient_inversion"]}, "gradient_inversion treats an update as the gradient"),
    ("scaffold", {"audits": ["embedding_rows"]}, "embedding_rows searches for the rows that a client moved"),
    ("scaffold", {"audits": ["label_leakage"]}, "label_leakage treats an update as the gradient"),
    ("feddyn", {"training": {"stack": 2}}, "training.stack: method feddyn uses the whole embedding table"),
]


@pytest.mark.parametrize(("method", "changes", "said"), REFUSED, ids=[said.split(":")[0] for *_, said in REFUSED])
def test_what_does_not_go_together_is_refused(method: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        tiny.experiment(method, **changes)


def test_feddyn_goes_with_other_aggregations_and_optimizers() -> None:
    federation, _, _ = trained(configured("feddyn", server={"aggregation": "median", "weights": "samples"}))
    assert any(np.any(tensor) for tensor in federation.beside.tensors.values())
    made = tiny.experiment("feddyn", training=tiny.TRAINING | {"optimizer": {"name": "adam", "lr": 0.01}})
    federation, fleet, x = trained(made)
    client, layer = CORPUS.clients[0], "head.0.weight"
    assert federation.experiment.training.rounds == 2
    assert np.any(fleet.worker.private[client.id][f"#state/h_k/{layer}"])
    assert not np.allclose(federation.state[layer], x[layer])


class Prototypes(FedAvg):
    """Sends tensors that are no parameters' shapes, and receives their mean."""

    name: Literal["prototypes"] = "prototypes"  # type: ignore[assignment]
    sends_state = True

    def server_state(self, shared: Tensors) -> State:
        return {"mean": Tensors(of=torch.zeros(2, 3), count=torch.zeros(()))}

    def extras(self, shared: Tensors) -> State:
        return self.server_state(shared)

    def after_update(self, local: Local) -> tuple[State, State]:
        assert local.server["mean"]["of"].shape == (2, 3)
        return {}, {"mean": local.server["mean"] + {"of": torch.ones(2, 3), "count": torch.tensor(local.samples)}}

    def server_step(self, server: State, change: Tensors, extras: State, share: float) -> tuple[State, Tensors]:
        return extras, change


def test_tensors_of_any_shape_can_be_kept_and_sent() -> None:
    federation, fleet, _ = trained(configured("fedavg").model_copy(update={"method": Prototypes()}))
    assert np.array_equal(federation.beside.tensors["mean/of"], np.full((2, 3), ROUNDS))
    assert federation.beside.tensors["mean/count"] == pytest.approx(ROUNDS * (12 * 12 + 15 * 15) / 27)
    assert fleet.private_states() == {0: b"", 1: b""}
    assert np.array_equal(federation.flat, trained(configured("fedavg"))[0].flat)
