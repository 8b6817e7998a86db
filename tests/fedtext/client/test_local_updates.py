"""Local updates: what a client receives and reports, the order of its batches, and clients that fail."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.texts import order_of
from fedtext.client.worker import Worker
from fedtext.layout import TABLE, Layout
from fedtext.methods import FedAvg
from fedtext.methods.base import Phase
from fedtext.methods.state import Local, State, Tensors
from fedtext.parameters import initial
from fedtext.server.method_state import MethodState
from tests import tiny
from tests.fedtext.client.hosting import CORPUS, hosting
from tests.loops import nonempty


class Numbered(FedAvg):
    """Sends clients the number of each row of the table, which they send back, and keep a multiple of."""

    name: Literal["numbered"] = "numbered"  # type: ignore[assignment]
    sends_state = True
    times: float = 1.0

    def extras(self, shared: Tensors) -> State:
        return self.server_state(shared)

    def after_update(self, local: Local) -> tuple[State, State]:
        return {"own": Tensors(first=torch.ones(1), last=self.times * torch.ones(1))}, dict(local.server)

    def server_state(self, shared: Tensors) -> State:
        return {"row": Tensors({TABLE: torch.arange(len(shared[TABLE]))[:, None].expand_as(shared[TABLE]).clone()})}


def numbered(**how: float) -> tuple[Worker, np.ndarray, dict[str, np.ndarray]]:
    """A worker, what its clients receive, and the shared parameters in it."""
    experiment = tiny.experiment().model_copy(update={"method": Numbered(**how)})
    shared, private = initial(experiment, CORPUS)
    packed = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    flat = MethodState(experiment.method, shared, experiment.model.fixes).with_state(packed)
    return LocalFleet(experiment, CORPUS, private).worker, flat, shared


def test_of_what_a_method_keeps_about_the_table_a_client_receives_its_own_rows() -> None:
    worker, flat, shared = numbered()
    rows_R = worker.clients[1].rows_R
    assert len(rows_R) < len(shared[TABLE])
    local = worker.local(flat, 1, worker.stack(flat, [1]))
    assert local.server["row"][TABLE][:, 0].tolist() == rows_R.tolist()
    assert np.array_equal(local.received[TABLE], shared[TABLE][rows_R])
    (reply,) = worker.train(flat, 1, [1])
    sent = load(reply.payload.tobytes())[f"row/{TABLE}"]
    expected = np.zeros_like(shared[TABLE])
    expected[rows_R] = rows_R[:, None]
    assert np.array_equal(sent, expected), "it sends all rows, of which the others are zeros"
    assert {name: tensor.tolist() for name, tensor in worker.private[1].items()} == {
        "#state/own/first": [1.0],
        "#state/own/last": [1.0],
    }


def test_state_that_is_not_finite_fails_its_client_and_is_not_kept() -> None:
    worker, flat, _ = numbered(times=1e39)
    (reply,) = worker.train(flat, 1, [1])
    assert reply.error == "ValueError: the state that its method keeps is not finite: lower training.optimizer.lr"
    assert 1 not in worker.private


def test_a_client_without_train_texts_is_told_so() -> None:
    worker, flat = hosting(tiny.experiment())
    worker.clients[0] = replace(worker.clients[0], train=worker.clients[0].validation)
    worker.texts.clear()
    assert worker.train(flat, 1, [0])[0].error == "ValueError: it has no training texts"


def test_a_client_whose_training_diverges_fails_alone_and_keeps_what_it_had() -> None:
    """One in a stack with others, which takes numbers that are none from its earlier state."""
    worker, flat = hosting(tiny.experiment("kteps", training=tiny.TRAINING | {"stack": 3}))
    whole = worker.train(flat, 1, [0, 1, 2])
    name = max(worker.private[1])
    worker.private = {1: {name: np.full_like(worker.private[1][name], np.nan)}}
    replies = worker.train(flat, 1, [0, 1, 2])
    assert [reply.client for reply in replies] == [0, 1, 2]
    assert replies[1].error == "its training loss is nan; a lower training.optimizer.lr may help"
    assert replies[1].payload.size == 0
    assert replies[1].metrics == {}
    for client in (0, 2):
        assert replies[client].error == ""
        assert replies[client].payload.tobytes() == whole[client].payload.tobytes()
    assert set(worker.private) == {0, 1, 2}
    assert np.isnan(worker.private[1][name]).all()


def test_a_part_of_the_network_that_a_loss_left_in_evaluation_trains_in_the_next_local_update() -> None:
    """As a plug-in's loss may, which reads a part without dropout."""
    experiment = tiny.experiment(model={"embedding": {"dim": 5}, "hidden": 4, "dropout": 0.5})
    sent = []
    for left in nonempty((False, True)):
        worker, flat = hosting(experiment)
        if left:
            drops = [module for module in worker.network.modules() if isinstance(module, torch.nn.Dropout)]
            for module in nonempty(drops):
                module.eval()
        (reply,) = worker.train(flat, 1, [0])
        sent.append(reply.payload.tobytes())
    assert sent[0] == sent[1]


def test_a_stack_that_fails_is_tried_client_by_client_and_a_client_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, flat = hosting(tiny.experiment())
    attempts = []

    def fails(flat: np.ndarray, round_: int, members: list[int]) -> None:
        attempts.append(list(members))
        raise OSError("no")

    monkeypatch.setattr(worker, "_train", fails)
    assert [reply.error for reply in worker.train(flat, 1, [0])] == ["OSError: no"]
    assert attempts == [[0]]
    assert [reply.error for reply in worker.train(flat, 1, [1, 2])] == ["OSError: no"] * 2
    assert attempts == [[0], [1, 2], [1], [2]]


def test_a_local_update_on_a_gpu_reports_its_time_there() -> None:
    worker, _ = hosting(tiny.experiment())
    assert worker._spent(3.0, 0.5) == {"seconds": 3.0, "cpu_seconds": 0.5}
    worker.device = torch.device("cuda")
    assert worker._spent(3.0, 0.5) == {"seconds": 3.0, "cpu_seconds": 0.5, "gpu_seconds": 3.0}


@pytest.mark.parametrize(
    ("method", "changes", "more"),
    [
        ("fedavg", {}, set()),
        ("fedrecon", {}, {"loss_reconstruction"}),
        ("fedevocab", {}, {"loss_adaptation"}),
        ("fedavg", {"uplink": [{"project": {"d1": 1, "d2": 3}}]}, {"energy_kept"}),
    ],
)
def test_metrics_of_a_local_update(method: str, changes: dict[str, Any], more: set[str]) -> None:
    experiment = tiny.experiment(method, training=tiny.TRAINING | {"stack": 3}, **changes)
    (worker, flat), (again, _) = hosting(experiment), hosting(experiment)
    replies = worker.train(flat, 1, [2, 0, 1])
    assert [reply.client for reply in replies] == [0, 1, 2]
    for reply in nonempty(replies):
        assert set(reply.metrics) == {"loss", "loss_ce", "samples", "seconds", "cpu_seconds"} | more
        assert reply.metrics["samples"] == len(CORPUS.clients[reply.client].train)
        assert reply.metrics["cpu_seconds"] >= 0
        *earlier, _ = experiment.method.phases(2)
        losses = {}
        for phase in earlier:
            stack = again.stack(flat, [reply.client])
            (outcome,) = again.run(phase, stack, flat, [reply.client], 1)
            losses[f"loss_{phase.name}"] = outcome.loss
        assert losses.keys() == more - {"energy_kept"}
        assert {name: reply.metrics[name] for name in losses} == pytest.approx(losses, rel=1e-5)
    if "energy_kept" in more:
        assert all(nonempty(0 < reply.metrics["energy_kept"] <= 1 for reply in replies))


def test_each_phase_of_a_local_update_draws_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last phase draws as if it were alone, so that a method with phases differs from one without in them alone."""
    worker, flat = hosting(tiny.experiment("fedevocab"))
    adaptation, joint = worker.method.phases(1)
    seen = []

    def train(problem: Any, training: Any, optimizer: Any, work: list[Any]) -> list[Any]:
        seen.append([batch.tolist() for each in work for batch in each.batches])
        return []

    monkeypatch.setattr("fedtext.client.host.train", train)
    worker.run(adaptation, worker.stack(flat, [1]), flat, [1], 2)
    texts = worker.texts_of(1, "train")

    def drawn(phase: Phase, last: bool) -> list[list[int]]:
        return [batch.tolist() for batch in order_of(worker.experiment, texts, phase, 2, 1, last)]

    assert seen == [drawn(adaptation, False)]
    assert drawn(adaptation, False) != drawn(adaptation, True) == drawn(joint, True)
    (work,) = worker.work(joint, [1], 2)
    assert [batch.tolist() for batch in work.batches] == drawn(joint, True)
