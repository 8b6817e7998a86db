"""LG-FedAvg after rounds of FedAvg: what is shared when, what that costs, and what does not go with it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from torch import Tensor

from fedtext.layout import TABLE
from fedtext.ledger.report import reveals
from fedtext.methods import LGFedAvg
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from fedtext.wire import encoding
from tests import tiny
from tests.fedtext.methods.objectives import LR, descend, plain
from tests.loops import nonempty
from tune_spaces import papers
from tune_spaces.papers import Scale

CORPUS = tiny.corpus(clients=3)
PRETRAINED = {"name": "lg_fedavg", "pretrain": 2}


def of(rounds: int, **changes: Any) -> dict[str, Any]:
    return {"training": tiny.TRAINING | {"rounds": rounds}} | changes


def test_two_clients_by_hand() -> None:
    """Full-batch gradient descent: a round of FedAvg, then two of LG-FedAvg, from what the first one gave."""
    training = {"rounds": 3, "local_epochs": 2, "batch_size": 99, "optimizer": {"lr": LR, "momentum": 0}}
    model = {"name": "bag", "embedding": {"dim": 5}, "hidden": ()}
    clients = tiny.TWO.clients  # descend's
    made = tiny.Finished(
        {"name": "lg_fedavg", "pretrain": 1}, tiny.TWO, model=model, training=training, evaluation={"personalize": None}
    )
    assert made.private == {}, "in the first round everything is shared"
    state = {name: torch.from_numpy(t.copy()).double() for name, t in made.layout.views(made.before).items()}
    head = {name for name in state if name.startswith("head.")}
    shares = [len(client.train) / sum(len(c.train) for c in clients) for client in clients]

    def ends(round_: int, starts: list[Mapping[str, Tensor]]) -> list[Mapping[str, Tensor]]:
        pairs = zip(clients, starts, strict=True)
        return [descend(plain, start, client, round_, made.experiment) for client, start in pairs]

    def mean(found: list[Mapping[str, Tensor]], name: str) -> Tensor:
        return sum((share * one[name] for share, one in zip(shares, found, strict=True)), torch.zeros(()))

    own = ends(1, [state, state])
    state = {name: mean(own, name) for name in state}
    own = [state, state]
    for round_ in (2, 3):
        own = ends(round_, [{**one, **{name: state[name] for name in head}} for one in own])
        state |= {name: mean(own, name) for name in head}
    # of what became private the server keeps what the first round gave
    for name, value in nonempty(made.state.items()):
        assert np.allclose(value, state[name], atol=2e-6), name
    for client, end in nonempty(zip(clients, own, strict=True)):
        kept = made.worker.private[client.id]
        assert set(kept) == set(state) - head
        for name, value in nonempty(kept.items()):
            rows = client.rows_R[1:] - 1 if name == TABLE else slice(None)
            assert np.allclose(value, end[name][rows], atol=2e-6), name


@pytest.mark.parametrize(
    "server", [{}, {"optimizer": {"name": "sgd", "momentum": 0.9}}, {"optimizer": "adam"}], ids=str
)
def test_it_is_fedavg_until_layers_become_private_and_the_server_keeps_these_as_they_were(
    server: dict[str, Any],
) -> None:
    """Whatever momentum the server's optimizer has."""
    fedavg = tiny.Finished("fedavg", CORPUS, **of(2, server=server))
    made = tiny.Finished(PRETRAINED, CORPUS, **of(4, server=server))
    for name, tensor in nonempty(fedavg.state.items()):
        assert np.array_equal(made.state[name], tensor) == (not name.startswith("head.")), name
    assert [record.metrics["loss"] for record in made.rows[:2]] == [record.metrics["loss"] for record in fedavg.rows]
    alone = tiny.Finished("lg_fedavg", CORPUS, **of(4, server=server))
    assert not np.array_equal(made.state["head.0.weight"], alone.state["head.0.weight"])
    assert [set(record.clients["client0"]) for record in made.rows] == [*[{"Ap_0"}] * 3, {"Ap_0", "Ap"}]


class Weighed(Federation):
    """Keeps what the server received in the last round."""

    def __init__(self, **changes: Any) -> None:
        experiment = tiny.experiment(PRETRAINED, **changes)
        shared, private = initial(experiment, CORPUS)
        self.recording = tiny.Recording(experiment, CORPUS, private)
        super().__init__(experiment, shared, self.recording, None)


def test_bytes_are_of_what_travels_in_a_round() -> None:
    """With half of the clients a round: a client receives all parameters with its first local update after FedAvg."""
    federation = Weighed(**of(8, participation={"fraction": 0.5}))
    whole, seen, downs = federation.layout.shapes, set(), []
    head = {name: shape for name, shape in whole.items() if name.startswith("head.")}
    for record in nonempty(federation.run()):
        received, private = federation.recording.received, record.round > 2
        names = [set(load(reply.payload.tobytes())) - {"#samples", "#rows"} for reply in received]
        assert names == [set(head if private else whole)] * len(received)
        assert record.metrics["bytes_up"] == sum(reply.payload.nbytes for reply in received)
        down = 0
        for reply in received:
            everything = federation.layout.with_rows(len(CORPUS.clients[reply.client].rows_R)).shapes
            down += encoding.encoded_size(head if reply.client in seen else everything)
            seen |= {reply.client} if private else set()
        assert record.metrics["bytes_down"] == down
        downs.append(down)
    assert seen == {0, 1, 2}
    assert len(set(downs[2:])) > 1, "clients came at different times"


def test_an_interrupted_run_continues_to_the_same_weights_wherever_it_stopped(tmp_path: Path) -> None:
    changes = of(4, participation={"fraction": 0.5, "dropout": 0.2})
    changes["training"] |= {"optimizer": {"lr": 0.1, "persist": True}}
    experiment = tiny.experiment(PRETRAINED, **changes)
    whole = tiny.federation(experiment, CORPUS)
    rows = list(whole.run())
    for stop in (1, 2, 3):
        folder = tmp_path / str(stop)
        interrupted = tiny.federation(experiment, CORPUS, folder=folder).run()
        for _ in range(stop):
            next(interrupted)
        continued = tiny.federation(experiment, CORPUS, folder=folder)
        last = list(continued.run())
        assert continued.flat.tobytes() == whole.flat.tobytes()
        assert [record.clients for record in last] == [record.clients for record in rows[stop:]]
        for name in ("bytes_up", "bytes_down", "bytes_total"):
            assert [record.metrics[name] for record in last] == [record.metrics[name] for record in rows[stop:]]


def test_noise_lies_on_what_is_sent_alone() -> None:
    uplink = [{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": 0.01}}]
    made = tiny.Finished(PRETRAINED, CORPUS, **of(3, uplink=uplink))
    before = [tiny.Finished(PRETRAINED | {"pretrain": 1}, CORPUS, **of(rounds, uplink=uplink)) for rounds in (2, 3)]
    for name, tensor in nonempty(made.state.items()):
        assert np.isfinite(tensor).all()
        assert np.array_equal(before[0].state[name], before[1].state[name]) == (not name.startswith("head.")), name


def test_a_run_says_that_the_embedding_is_sent_in_the_first_rounds_alone() -> None:
    said = reveals(tiny.experiment(PRETRAINED, **of(3)))
    assert any("the embedding is sent in the first rounds alone" in sentence for sentence in said)
    assert any("wire.rows: own" in sentence for sentence in said)
    assert not any(nonempty("first rounds" in s for s in reveals(tiny.experiment("fedavg"))))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": PRETRAINED | {"pretrain": 3}}, r"3 rounds of FedAvg leave none of training\.rounds \(3\)"),
        ({"uplink": [{"project": {"d1": 1, "d2": 2}}]}, "project is for updates of the same coordinates"),
        ({"uplink": ["quantize", "randomized_response"]}, "quantize is for updates of the same coordinates"),
        ({"audits": ["embedding_rows"]}, "audits need updates of the same coordinates"),
        ({"evaluation": {"select": "Ag_val"}}, "needs a completely shared model"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny.experiment(**({"method": PRETRAINED} | of(3) | changes))


def test_a_scale_shortens_both_stages() -> None:
    paper = papers.load("kteps")
    table = papers.tables(paper, ["3"], "FDU", ["LG. pretrained"])["3"]
    for share, expected in ((1.0, (50, 25)), (0.1, (5, 2))):
        ((_, (case,)),) = papers.cases(paper, table, "FDU", Scale(share), 1, {})
        method = case.experiment.method
        assert isinstance(method, LGFedAvg)
        assert (case.experiment.training.rounds, method.pretrain) == expected
