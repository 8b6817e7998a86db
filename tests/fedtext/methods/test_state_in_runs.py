"""State in a run: mechanisms and ledger cover it, checkpoints keep it, and what it cannot go with is refused."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.numpy import load

from fedtext.layout import TABLE
from fedtext.ledger import ledger
from fedtext.ledger.report import reveals
from fedtext.methods import FedAvg, FedDyn
from fedtext.methods.state import Local, State, Tensors
from fedtext.parameters import initial, shared_numbers
from fedtext.server.federation import Federation
from fedtext.state.checkpoint import Checkpoints
from fedtext.testing.runs import Recording, check_packing, final
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.fedtext.methods.stateful import CORPUS, HALF, ROUNDS, configured, trained
from tests.loops import nonempty

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
        kept = federation.step.method_state.tensors[f"{group}/{name}"].astype(np.float64)
        mean = np.zeros_like(kept)
        for client, weight in zip(CORPUS.clients, share, strict=True):
            state = fleet.worker.private[client.id][f"#state/{own}/{name}"]
            rows = fleet.worker.clients[client.id].rows_R if name == TABLE else slice(None)
            mean[rows] += weight * state.astype(np.float64)
        assert np.abs(kept - mean).max() < 1e-6, name
        assert np.abs(kept).max() > 1e-4, name
        assert not np.allclose(kept, plain.step.method_state.tensors[f"{group}/{name}"], rtol=0.01, atol=1e-5), name


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
    for name, tensor in nonempty(federation.step.method_state.tensors.items()):
        apart = tensor - quiet.step.method_state.tensors[name]
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
    assert any(np.any(tensor) for tensor in federation.step.method_state.tensors.values())
    made = tiny.experiment("feddyn", training=tiny.TRAINING | {"optimizer": {"name": "adam", "lr": 0.01}})
    federation, fleet, x = trained(made)
    client, layer = CORPUS.clients[0], "head.0.weight"
    assert federation.experiment.training.rounds == 2
    assert np.any(fleet.worker.private[client.id][f"#state/h_k/{layer}"])
    assert not np.allclose(federation.state[layer], x[layer])


@pytest.mark.parametrize("train", ["both", "b"])
@pytest.mark.parametrize(("method", "groups"), [("scaffold", ("c", "c_k")), ("feddyn", ("h", "h_k"))])
def test_a_state_is_about_what_clients_move(method: str, groups: tuple[str, str], train: str) -> None:
    """With an adapter they move neither the word table nor, with ``train: b``, the first factor."""
    model = SCRATCH | {"adapter": {"lora": {"rank": 2, "train": train}}}
    changes = {"model": model, "training": tiny.TRAINING | {"optimizer": {"name": "sgd", "lr": 0.1}}}
    plain, found = tiny.Finished("fedavg", **changes), tiny.Finished(method, **changes)
    moved = {
        name for name in found.state if not np.array_equal(plain.state[name], found.layout.views(plain.before)[name])
    }
    assert TABLE not in moved
    assert len(moved) > 2
    assert set(found.step.method_state.tensors) == {f"{groups[0]}/{name}" for name in moved}
    kept = found.worker.private[0]
    assert set(kept) == {f"#state/{groups[1]}/{name}" for name in moved}
    times = 2 if method == "scaffold" else 1
    sizes = sum(plain.state[name].nbytes for name in moved)
    assert shared_numbers(found.experiment, 2, 2, 20) == times * sizes // 4


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
    assert np.array_equal(federation.step.method_state.tensors["mean/of"], np.full((2, 3), ROUNDS))
    assert federation.step.method_state.tensors["mean/count"] == pytest.approx(ROUNDS * (12 * 12 + 15 * 15) / 27)
    assert fleet.private_states() == {}
    assert np.array_equal(federation.flat, trained(configured("fedavg"))[0].flat)


@pytest.mark.parametrize("mechanism", [{"gaussian": {"sigma": 0.01}}, {"quantize": {"q": 0.01}}])
def test_what_a_mechanism_draws_does_not_depend_on_the_order_of_a_clients_state(mechanism: Any) -> None:
    """A state that has been written and read again has another order of its tensors."""
    training = tiny.TRAINING | {"optimizer": {"name": "sgd", "lr": 0.1}}
    uplink = [{"clip": {"norm": 0.3}}, mechanism]
    noisy = tiny.experiment("scaffold", training=training, uplink=uplink, wire={"rows": "all"})
    for _ in range(3):
        check_packing(noisy, tiny.corpus(3))
