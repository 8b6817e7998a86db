"""Methods that send something else than the change of parameters, and hooks of clients that would be in a stack."""

from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedtext.config.compatibility import problems
from fedtext.config.engine import stack_size
from fedtext.errors import ClientError
from fedtext.layout import TABLE
from fedtext.methods import FedAvg
from fedtext.methods.state import Local, State, Tensors
from fedtext.testing.runs import Recording, check_packing, final
from tests import tiny
from tests.fedtext.methods.stateful import CORPUS, ROUNDS, configured
from tests.loops import nonempty

CLIP = {"clip": {"norm": 0.05}}
BITS = [{"quantize": {"q": 0.1}}, {"randomized_response": {"epsilon": 1.0}}]


class ErrorFeedback(FedAvg):
    """FedAvg whose clients send later what mechanisms have left out."""

    name: Literal["error_feedback"] = "error_feedback"  # type: ignore[assignment]

    def client_state(self, received: Tensors) -> State:
        return {"left": received.zeros()}

    def before_sending(self, local: Local) -> Tensors:
        return local.delta + local.state["left"]

    def after_update(self, local: Local) -> tuple[State, State]:
        return {"left": local.received.zeros()}, {}

    def after_sending(self, local: Local, state: State, update: Tensors, extras: State) -> State:
        return {"left": self.before_sending(local) - update}


class Keeping(FedAvg):
    """FedAvg whose clients keep their last update, and send it once more."""

    name: Literal["keeping"] = "keeping"  # type: ignore[assignment]

    def client_state(self, received: Tensors) -> State:
        return {"last": received.zeros()}

    def extras(self, shared: Tensors) -> State:
        return {"again": shared}

    def after_update(self, local: Local) -> tuple[State, State]:
        return {"last": local.delta}, {"again": local.delta}


class Masked(FedAvg):
    """FedAvg whose clients send some places of their update, drawn in each round."""

    name: Literal["masked"] = "masked"  # type: ignore[assignment]

    def before_sending(self, local: Local) -> Tensors:
        return Tensors(
            {name: tensor * torch.bernoulli(torch.full(tensor.shape, 0.5)) for name, tensor in local.delta.items()}
        )


def having(method: FedAvg, **changes: Any) -> Any:
    """The experiment of these tests with a method that has no name in experiment files."""
    return configured("fedavg", **changes).model_copy(update={"method": method})


def decoded(federation: Any, reply: Any, flat: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """An update as the server reads it, tables with all rows."""
    update = federation.decoder.update(reply.payload, reply.client, flat, len(federation.history) + 1)
    tensors = dict(update.tensors)
    if update.rows is not None:
        table = np.zeros(federation.layout.shapes[TABLE], np.float32)
        table[update.rows] = tensors[TABLE]
        tensors[TABLE] = table
    return tensors


@pytest.mark.parametrize("rows", ["own", "all"])
@pytest.mark.parametrize("uplink", [[CLIP], BITS, []], ids=["clip", "bits", "nothing"])
def test_what_mechanisms_leave_out_is_sent_later(uplink: list[Any], rows: str) -> None:
    """In each round what is sent and what is left make up the change of the parameters and what was left before."""
    federation = tiny.federation(having(ErrorFeedback(), uplink=uplink, wire={"rows": rows}), CORPUS, Recording)
    plain = tiny.federation(configured("fedavg", wire={"rows": rows}), CORPUS, Recording)
    worker, left = federation.fleet.worker, dict[tuple[int, str], NDArray[np.float32]]()
    before, larger = federation.flat, 0
    for record in nonempty(federation.run()):
        changes = plain.fleet.worker.train(before, record.round, range(len(CORPUS.clients)))
        for reply, change in nonempty(zip(federation.fleet.received, changes, strict=True)):
            sent, whole = decoded(federation, reply, before), decoded(plain, change, before)
            rows_R = worker.clients[reply.client].rows_R
            for name, moved in nonempty(whole.items()):
                own = rows_R if name == TABLE else slice(None)  # in other rows mechanisms change what nobody keeps
                now = worker.private[reply.client][f"#state/left/{name}"]
                was = left.get((reply.client, name), np.zeros_like(now))
                assert np.abs(sent[name][own] + now - moved[own] - was).max() < 1e-6, name
                left[reply.client, name] = now
                larger += bool(np.any(now))
        before = federation.flat
    assert len(federation.history) == ROUNDS
    assert bool(larger) == bool(uplink), "without mechanisms nothing is left"


@pytest.mark.parametrize("method", [ErrorFeedback(), Masked()])
def test_what_a_client_sends_is_in_checkpoints_and_goes_with_it(method: FedAvg, tmp_path: Any) -> None:
    experiment = having(method, uplink=[CLIP])
    whole = final(experiment, CORPUS)
    assert final(experiment, CORPUS) == whole, "what a hook draws is drawn from the seed"
    final(experiment, CORPUS, tmp_path, rounds=2)
    assert final(experiment, CORPUS, tmp_path) == whole
    check_packing(experiment, CORPUS)
    assert whole[0] != final(configured("fedavg", uplink=[CLIP]), CORPUS)[0]


class Narrow(FedAvg):
    def before_sending(self, local: Local) -> Tensors:
        return Tensors({name: tensor[..., :1] for name, tensor in local.delta.items()})


class Fewer(FedAvg):
    def before_sending(self, local: Local) -> Tensors:
        return Tensors({name: tensor for name, tensor in local.delta.items() if "bias" not in name})


class Wider(FedAvg):
    def before_sending(self, local: Local) -> Tensors:
        return Tensors({name: tensor.double() for name, tensor in local.delta.items()})


class Further(FedAvg):
    def before_sending(self, local: Local) -> Tensors:
        return Tensors(local.delta | {"more": next(iter(local.delta.values()))})


class Nothing(FedAvg):
    def before_sending(self, local: Local) -> Tensors:
        return None  # type: ignore[return-value]


class Endless(FedAvg):
    def before_sending(self, local: Local) -> Tensors:
        return local.delta / 0


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (Narrow(), "before_sending of its method returns embedding.weight in another shape or type, or not at all"),
        (Fewer(), "before_sending of its method returns encoder.bias in another shape or type, or not at all"),
        (Wider(), "before_sending of its method returns embedding.weight in another shape or type, or not at all"),
        (Further(), "before_sending of its method returns more, which local.delta does not have"),
        (Nothing(), "before_sending of its method returns None, and no tensors by name"),
        (Endless(), "before_sending of its method returns .* with numbers that are not finite"),
    ],
)
def test_an_update_that_is_none_is_its_clients_failure(method: FedAvg, problem: str) -> None:
    with pytest.raises(ClientError, match=problem):
        list(tiny.federation(having(method), CORPUS).run())


def test_audits_that_take_updates_for_gradients_are_refused() -> None:
    found = list(
        problems(having(ErrorFeedback(), audits=[{"label_leakage": {}}, {"attribute_inference": {"words": ["w3"]}}]))
    )
    assert len(found) == 2
    for problem, audit in zip(sorted(found), ("attribute_inference", "label_leakage"), strict=True):
        what = "treats an update as the gradient of a loss, and method error_feedback sends something else"
        assert problem.startswith(f"audits: {audit} {what}")


RECURRENT = {"name": "bigru", "embedding": {"dim": 4}, "hidden": 4}


@pytest.mark.parametrize("method", [Keeping(), ErrorFeedback()])
def test_clients_of_a_method_with_hooks_are_trained_one_by_one(method: FedAvg) -> None:
    """The hooks are of one client: in a stack all clients would have the state of its first one."""
    sixty = tiny.experiment("fedavg", model=RECURRENT).model_copy(update={"method": method})
    assert stack_size(sixty, 64) == (1, f"clients one by one: method {method.name} has hooks, which are of one client")
    assert stack_size(sixty.model_copy(update={"method": FedAvg()}), 64)[0] > 1
    training = {**tiny.TRAINING, "stack": 4, "engine": "cells"}
    (problem,) = problems(
        tiny.experiment("fedavg", model=RECURRENT, training=training).model_copy(update={"method": method})
    )
    assert problem.startswith(
        f"training.stack: method {method.name} has hooks, which are of one client, so that clients"
    )
    experiment, clients = having(method, model=RECURRENT), tiny.corpus(clients=40, texts=2)
    federation = tiny.federation(experiment, clients)
    list(federation.run())
    group = f"#state/{'last' if method.name == 'keeping' else 'left'}/"
    states = [federation.fleet.worker.private[client.id] for client in clients.clients]
    biases = [b"".join(state[name].tobytes() for name in sorted(state) if name.startswith(group)) for state in states]
    assert len(set(biases)) == (len(biases) if method.name == "keeping" else 1)
