"""Clients that are not available, late, or sampled in addition: who they are, and what the rest notices."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.config.participation import Availability, Participation
from fedtext.errors import ClientError, UserError
from fedtext.messages import Reply
from fedtext.metrics import find
from fedtext.server.clock import available
from fedtext.server.sampling import returned, sampled
from fedtext.server.traffic import in_order
from fedtext.state.noise_key import NoiseKey
from fedtext.testing.runs import check_packing, final
from tests import tiny
from tests.loops import nonempty

NOISE = NoiseKey(bytes(16))
CORPUS = tiny.corpus(clients=6, texts=2)
SAMPLES = {client.id: len(client.train) for client in CORPUS.clients}
STRICT = {"pace": {"spread": 1.0, "jitter": 0.5}, "deadline_s": 0.2}


def experiment(rounds: int = 4, **participation: Any) -> Any:
    return tiny.experiment(
        participation=participation,
        training=tiny.TRAINING | {"rounds": rounds},
        evaluation={"personalize": None},
    )


def test_clients_are_available_by_day_and_hardly_by_night() -> None:
    """Each client has a noon of its own; over clients and rounds of a day the mean is (1 + night) / 2."""
    availability = Availability(day=8, night=0.2)
    present = np.stack([available(availability, 0, r, 40) for r in range(1, 801)], 1)
    assert abs(present.mean() - 0.6) < 0.01
    hours = present.reshape(40, 100, 8).mean(1)  # of each client, by the hour
    assert np.abs(hours.max(1) - 1).max() < 0.12  # an hour of eight is nearly noon
    assert np.abs(hours.min(1) - 0.2).max() < 0.16
    assert len(set(hours.argmax(1))) == 8
    always = Availability(day=8, night=1)
    assert all(available(always, 0, 3, 40))


def test_a_sample_is_of_available_clients_alone_and_smaller_where_there_are_too_few() -> None:
    made = experiment(fraction=0.5, availability={"day": 4, "night": 0})
    availability = made.participation.availability
    sizes = set()
    for round_ in range(1, 60):
        ids = sampled(made, range(6), round_, NOISE)
        sizes.add(len(ids))
        assert set(ids) <= set(np.flatnonzero(available(availability, made.seed, round_, 6)))
    assert max(sizes) == 3 > min(sizes)


def test_over_selection_is_not_rounded_up_by_an_error_of_rounding() -> None:
    """1.1 times 50 is more than 55 in floating point."""
    made = experiment(fraction=0.5, over_selection=1.1, pace={"spread": 1.0})
    assert len(sampled(made, range(100), 1, NOISE)) == made.participation.invited(100) == 55
    assert made.participation.over_selected(51) == 57
    plain = experiment(fraction=0.5, over_selection=1.5, pace={"spread": 1.0})
    assert plain.participation.invited(100) == 75


def test_a_round_that_nobody_begins_counts_unless_more_than_one_update_is_needed() -> None:
    made = experiment(6, fraction=0.17, dropout=0.7)
    records = list(tiny.federation(made, CORPUS).run())
    assert {record.metrics["clients_trained"] for record in records} == {0, 1}
    assert all("attempts" not in record.metrics for record in nonempty(records)), "none was repeated"
    with pytest.raises(UserError, match=r"round 1: .* fewer than the 2 of participation.min_clients, in attempt 3"):
        list(tiny.federation(experiment(6, fraction=0.34, dropout=0.95, min_clients=2), CORPUS).run())


def test_times_are_log_normal_around_the_texts_of_a_client() -> None:
    """log t = log(n epochs / texts_per_second) + jitter z - spread z_k, with standard normal z and z_k."""
    made = experiment(pace={"texts_per_second": 4, "spread": 0.6, "jitter": 0.3})
    per_update = 8 * made.training.local_epochs / 4
    logs = np.array([[returned(made, [k], {k: 8}, r).seconds for r in range(40)] for k in range(300)])
    logs = np.log(logs / per_update)
    assert abs(logs.mean()) < 4 * 0.6 / math.sqrt(300)
    assert logs.std(1).mean() == pytest.approx(0.3, rel=0.03)
    assert logs.mean(1).std() == pytest.approx(0.6, rel=0.15)
    twice = returned(made, [0], {0: 16}, 1).seconds
    assert twice == pytest.approx(2 * returned(made, [0], {0: 8}, 1).seconds)


def test_a_round_ends_when_enough_have_returned() -> None:
    made = experiment(fraction=0.5, over_selection=2.0, pace={})
    assert sampled(made, range(6), 1, NOISE) == list(range(6))
    result = returned(made, range(6), SAMPLES, 1)
    alone = {k: returned(made, [k], SAMPLES, 1).seconds for k in range(6)}
    fastest = sorted(alone, key=lambda k: alone[k])[:3]
    assert result.clients == sorted(fastest)
    assert result.late == sorted(set(range(6)) - set(fastest))
    assert result.seconds == max(alone[k] for k in fastest)


def test_a_deadline_leaves_out_those_who_are_late_and_is_waited_for() -> None:
    made = experiment(pace={}, deadline_s=0.05)
    alone = {k: returned(experiment(pace={}), [k], SAMPLES, 1).seconds for k in range(6)}
    result = returned(made, range(6), SAMPLES, 1)
    assert result.clients == [k for k in range(6) if alone[k] <= 0.05]
    assert 0 < len(result.clients) < 6
    assert result.seconds == 0.05
    patient = returned(experiment(pace={}, deadline_s=1e6), range(6), SAMPLES, 1)
    assert patient == returned(experiment(pace={}), range(6), SAMPLES, 1)
    assert patient.seconds == max(alone.values())


def test_late_clients_receive_the_parameters_and_change_nothing(tmp_path: Path) -> None:
    made = experiment(rounds=6, on_client_error="skip", **STRICT)
    federation = tiny.federation(made, CORPUS, tiny.Recording)
    before = dict.fromkeys(range(6), b"")
    total, late = 0.0, 0
    for record in nonempty(federation.run()):
        expected = returned(made, range(6), SAMPLES, record.round)
        assert sorted(reply.client for reply in federation.fleet.received) == expected.clients
        assert record.metrics["clients_late"] == len(expected.late)
        assert record.metrics["clients_trained"] == len(expected.clients)
        total += expected.seconds or 0.0
        assert record.metrics["simulated_seconds_total"] == pytest.approx(total)
        everybody = [federation.fleet.clients[client] for client in range(6)]
        assert record.metrics["bytes_down"] == federation.downlink.size(everybody, record.round)
        now = federation.fleet.private_states(range(6))
        assert all(nonempty(now[client] == before[client] for client in [*expected.late, *before]))
        before, late = now, late + len(expected.late)
    assert late


def test_an_interrupted_run_and_any_packing_have_the_same_rounds(tmp_path: Path) -> None:
    made = experiment(availability={"day": 4, "night": 0.3}, **STRICT | {"deadline_s": 0.4})
    whole = final(made, CORPUS)
    final(made, CORPUS, tmp_path, rounds=2)
    assert final(made, CORPUS, tmp_path) == whole
    check_packing(made, CORPUS)


def test_a_round_that_everybody_is_late_for_is_repeated_and_then_fails() -> None:
    made = experiment(**STRICT | {"deadline_s": 1e-6})
    with pytest.raises(
        UserError, match=r"round 1: 0 of 6 clients completed it, 6 being late, fewer than .* in attempt 3"
    ):
        list(tiny.federation(made, CORPUS, LocalFleet).run())
    with pytest.raises(UserError, match=r": raise participation.deadline_s, or lower participation.min_clients$"):
        list(tiny.federation(made, CORPUS, LocalFleet).run())
    steady = experiment(pace={"jitter": 0}, deadline_s=1e-6)  # another attempt would have the same
    with pytest.raises(UserError, match=r"6 being late, fewer than the 1 of participation.min_clients: raise"):
        list(tiny.federation(steady, CORPUS, LocalFleet).run())


WRONG = {
    "deadline alone": ({"deadline_s": 1}, "deadline_s: it needs to be known how long clients take: set pace"),
    "more alone": ({"over_selection": 2}, "over_selection: it needs to be known how long clients take"),
    "poisson": ({"over_selection": 2, "pace": {}, "sampling": "poisson"}, "a Poisson sample has no size"),
}


@pytest.mark.parametrize(("keys", "message"), WRONG.values(), ids=list(WRONG))
def test_keys_that_need_others_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Participation(**keys)


@pytest.mark.parametrize("keys", [{"availability": {}}, {"pace": {}, "deadline_s": 1}])
def test_methods_and_noise_that_need_everybody_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="method fedsgd has all clients in every round"):
        tiny.experiment("fedsgd", participation=keys, training=tiny.TRAINING | {"local_epochs": 1})
    private = {"server": {"noise": {"multiplier": 1}, "weights": "uniform"}, "uplink": [{"clip": {"norm": 1}}]}
    with pytest.raises(ValueError, match="expected number of clients, which is not known with participation"):
        tiny.experiment(participation=keys, wire={"rows": "all"}, **private)


def test_replies_are_those_of_the_clients_that_were_asked_each_once() -> None:
    names = ["", "books", "films", "music"]

    def taken(*clients: int) -> list[int]:
        return [reply.client for reply in in_order(map(Reply, clients), [1, 2], 4, names)]

    assert taken(2, 1) == [1, 2]
    for clients, message in (
        ((1, 1, 2), "books.*4.*it has replied twice"),
        ((3, 1, 2), "music.*4.*it has replied without being asked"),
    ):
        with pytest.raises(ClientError, match=message):
            taken(*clients)


def test_bytes_per_client_are_those_of_a_round_over_the_clients_in_its_sum_as_they_are_described() -> None:
    """What late clients received is in it: more than any client exchanges."""
    made = tiny.federation(experiment(1, fraction=0.5, pace={}, over_selection=2.0), CORPUS)
    (record,) = made.run()
    metrics = record.metrics
    assert (metrics["clients_trained"], metrics["clients_late"]) == (3, 3)
    assert metrics["bytes_per_client"] == (metrics["bytes_up"] + metrics["bytes_down"]) / 3
    assert metrics["bytes_per_client"] > metrics["bytes_up"] / 3 + metrics["bytes_down"] / 6
    described = find("bytes_per_client")
    assert described is not None
    assert "per client whose update was aggregated" in described.summary
    assert "What was sent to late and failed clients counts too" in described.details
