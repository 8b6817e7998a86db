"""Payloads that cannot be used: a failure of their client, for the server and for an actor that adds up."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load, save

from actors.client import ClientActor
from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import ClientError, UserError
from fedtext.layout import Layout
from fedtext.messages import Reply, Update
from fedtext.parameters import initial
from fedtext.server.aggregation import Summation
from fedtext.server.federation import Federation
from fedtext.server.weighted_sum import WeightedSum
from fedtext.wire.decoder import Decoder
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=3, texts=2)


def damaged(payload: NDArray[np.uint8], how: str) -> NDArray[np.uint8]:
    """The payload cut off, with a sample count that is none, or with one number in its last tensor replaced."""
    content = load(payload.tobytes())
    if how == "cut":
        return payload[:-1]
    if how == "count":
        content["#samples"] = np.zeros(0, np.int64)
    elif how == "more":
        content["#samples"] = content["#samples"] + 1000
    else:
        name = max(name for name in content if not name.startswith("#"))
        content[name] = content[name].copy()
        content[name].reshape(-1)[-1] = float(how)
    return np.frombuffer(save(content), np.uint8)


class Faulty(LocalFleet):
    """A fleet whose client 1 sends something else than it should in the second round, or says that it failed."""

    how = "nan"

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        for reply in super().train(handle, round_, cohort):
            if reply.client == 1 and round_ == 2:
                reply = (
                    Reply(1, error="away")
                    if self.how == "fails"
                    else replace(reply, payload=damaged(reply.payload, self.how))
                )
            yield reply


def faulty(how: str, method: str, on_client_error: str) -> Federation:
    experiment = tiny.experiment(method, participation={"on_client_error": on_client_error})
    federation = tiny.federation(experiment, CORPUS, Faulty)
    fleet = federation.fleet
    fleet.how = how
    return federation


SENT = {
    "nan": r"it sent \S+ with numbers that are not finite",
    "-inf": r"it sent \S+ with numbers that are not finite",
    "cut": "it sent no readable payload",
    "count": "it sent a sample count that is none",
    "more": r"it says that it has 10\d\d train texts, and has \d+",
}
TOO_LARGE = {"1e9": r"it changed \S+ by 1e\+09 in one round, too much for an exact sum"}
SUMMED = [("fedavg", how) for how in SENT | TOO_LARGE] + [("fedatt", how) for how in SENT]


@pytest.mark.parametrize(("method", "how"), SUMMED)
def test_a_payload_that_cannot_be_used_is_a_failure_of_its_client(how: str, method: str) -> None:
    with pytest.raises(ClientError, match=f"client client1 failed in round 2: {(SENT | TOO_LARGE)[how]}"):
        list(faulty(how, method, "fail").run())
    skipped, away = faulty(how, method, "skip"), faulty("fails", method, "skip")
    record, expected = list(skipped.run())[-1], list(away.run())[-1]
    assert skipped.flat.tobytes() == away.flat.tobytes()
    for metric in ("loss", "bytes_up", "clients_failed"):
        assert record.metrics[metric] == expected.metrics[metric]


class Enlarging(LocalFleet):
    """A fleet whose first client sends ``size`` in every place."""

    size = 3e38

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        made = self.worker.uplink.update

        def update(flat: Any, parameters: Any, round_: int, data: Any, *beside: Any) -> Any:
            sent, said = made(flat, parameters, round_, data, *beside)
            for tensor in nonempty(sent.tensors.values()) if data.id == 0 else ():
                tensor[...] = self.size
            return sent, said

        self.worker.uplink.update = update  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "aggregation",
    ["attention", "geometric_median", "median", {"trimmed_mean": {"share": 0.4}}, {"norm_bounded": {"norm": 1.0}}],
)
@pytest.mark.parametrize("uplink", [[], [{"project": {"d1": 1, "d2": 4}}]], ids=["sent", "restored"])
def test_huge_numbers_are_a_failure_of_their_client_whatever_the_aggregation(aggregation: Any, uplink: Any) -> None:
    """Products of finite numbers, as the server restores them, can be infinite."""
    made = tiny.experiment(
        uplink=uplink, server={"aggregation": aggregation}, participation={"on_client_error": "skip"}
    )
    federation = tiny.federation(made, CORPUS, Enlarging)
    for record in nonempty(federation.run()):
        assert record.metrics["clients_failed"] == 1
        assert np.isfinite(record.metrics["loss"])
    assert np.isfinite(federation.flat).all()


@pytest.mark.parametrize("how", SENT | TOO_LARGE)
def test_an_actor_that_adds_up_refuses_the_same_payloads(how: str) -> None:
    experiment = tiny.experiment()
    shared, private = initial(experiment, CORPUS)
    fleet = LocalFleet(experiment, CORPUS, private)
    actor = ClientActor.__ray_metadata__.modified_class()
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    actor.worker, actor.sum = fleet.worker, None
    actor.decoder = Decoder(experiment, layout)
    actor.summation = Summation(experiment, layout, [client.samples for client in fleet.clients])
    flat = layout.pack(shared)
    good, bad = fleet.worker.train(flat, 1, [0, 1])
    assert not actor._folded(good, flat, 1).error
    alone = actor.partial(1)
    actor._folded(good, flat, 1)
    refused = actor._folded(replace(bad, payload=damaged(bad.payload, how)), flat, 1)
    assert re.match((SENT | TOO_LARGE)[how], refused.error)
    assert actor.partial(1).sum_N.tobytes() == alone.sum_N.tobytes()


def test_a_sum_takes_no_number_that_is_none() -> None:
    layout = Layout({"b": (3,)})
    for bad in (np.nan, np.inf, -np.inf):
        total = WeightedSum(layout, 4, uniform=False, holders_only=False)
        with pytest.raises(UserError, match=r"client 7 changed a parameter by (nan|inf) in one round"):
            total.add(Update(7, 4, {"b": np.array([0, bad, 1], np.float32)}))
