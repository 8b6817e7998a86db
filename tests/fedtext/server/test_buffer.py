"""Asynchronous training: who returns when, on which parameters, and what the server makes of it."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import UserError
from fedtext.server.buffer import Schedule
from fedtext.server.fleet import ClientTable
from fedtext.server.repeats import check_sizes
from fedtext.server.start import start
from fedtext.testing.runs import check_run
from tests import tiny
from tests.loops import nonempty
from tests.outcomes import final

CORPUS = tiny.corpus(clients=7, texts=4)


def asynchronous(size: int = 2, exponent: float = 0.5, rounds: int = 6, method: Any = "fedavg", **changes: Any) -> Any:
    participation = {"fraction": 0.6, "pace": {"spread": 1.0}} | changes.pop("participation", {})
    server = {"buffer": {"size": size, "staleness_exponent": exponent}} | changes.pop("server", {})
    evaluation = {"personalize": None, "every": rounds}
    training = tiny.TRAINING | {"rounds": rounds}
    return tiny.experiment(
        method, participation=participation, server=server, training=training, evaluation=evaluation, **changes
    )


def table(clients: int, samples: int = 10) -> ClientTable:
    counts = np.full(clients, samples)
    names = [f"client {number}" for number in range(clients)]
    return ClientTable(names, counts, counts, np.zeros((clients, 3), np.int64), np.ones(clients, bool))


@pytest.mark.parametrize(
    ("clients", "size", "fraction", "dropout"),
    [(40, 5, 0.3, 0.0), (40, 5, 0.3, 0.4), (6, 6, 0.5, 0.5), (6, 6, 1.0, 0.0), (500, 1, 0.01, 0.0), (9, 1, 0.1, 0.0)],
)
def test_a_client_is_in_one_place_at_a_time(clients: int, size: int, fraction: float, dropout: float) -> None:
    """Followed from the steps alone: who begins is neither training nor in the buffer, and who returns has begun."""
    participation = {"fraction": fraction, "dropout": dropout}
    schedule = Schedule(asynchronous(size, participation=participation), table(clients))
    training: dict[int, int] = {}  # the step after which a client has begun
    together = max(1, round(fraction * clients))
    for round_ in range(1, 40):
        step = schedule.step(round_)
        assert len(step.versions) == size
        assert step.seconds > 0
        begun = Counter(step.started)
        assert dropout or not training.keys() & set(step.started)
        training |= dict.fromkeys(step.started, round_ - 1)
        assert dropout or max(begun.values(), default=0) <= 1
        for client, version in nonempty(step.versions.items()):
            assert training.pop(client) == version or dropout
        assert len(schedule.training) <= together
        assert dropout or set(training) == schedule.busy
        assert step.awaited == {each.version for each in schedule.training}
        assert dropout or size == clients or len(schedule.busy) == together - 1


def test_with_one_client_at_a_time_no_update_is_stale() -> None:
    schedule = Schedule(asynchronous(1, participation={"fraction": 0.01}), table(50))
    for round_ in range(1, 30):
        step = schedule.step(round_)
        assert list(step.versions.values()) == [round_ - 1]
        assert step.started == list(step.versions)


def test_slower_clients_return_less_often_and_later() -> None:
    """Of many steps: staleness grows with the time that a client takes."""
    experiment = asynchronous(4, participation={"fraction": 0.3, "pace": {"spread": 1.5, "jitter": 0.0}})
    schedule, seen_, stale = Schedule(experiment, table(40)), Counter[int](), Counter[int]()
    for round_ in range(1, 1500):
        for client, version in schedule.step(round_).versions.items():
            seen_[client] += 1
            stale[client] += round_ - 1 - version
    mean = {client: stale[client] / count for client, count in seen_.items()}
    order = sorted(mean, key=lambda client: mean[client])
    assert len(order) == 40
    assert mean[order[-1]] > 4 * mean[order[0]] + 4
    slow, fast = (sum(seen_[client] for client in half) for half in (order[-10:], order[:10]))
    assert slow < fast


@pytest.mark.parametrize("uplink", [[], ["clip", {"gaussian": {"sigma": 0.1}}]])
def test_a_server_that_waits_for_all_is_that_of_rounds(uplink: list[Any]) -> None:
    """Everyone trains, and a step needs everyone: nothing is stale, and the bits are those of federated averaging."""
    rest: dict[str, Any] = {"uplink": uplink, "wire": {"rows": "all"}}
    plain = tiny.experiment(
        participation={"pace": {"spread": 1.0}},
        training=tiny.TRAINING | {"rounds": 3},
        evaluation={"personalize": None, "every": 3},
        **rest,
    )
    waiting = asynchronous(7, rounds=3, participation={"fraction": 1.0}, **rest)
    one, other = (tiny.federation(made, CORPUS) for made in (plain, waiting))
    for made in (one, other):
        list(made.run())
    if uplink:  # noise is drawn from a digest of the experiment
        assert one.flat.shape == other.flat.shape
        assert not np.array_equal(one.flat, other.flat)
    else:
        assert np.array_equal(one.flat, other.flat)
    assert [r.metrics["bytes_up"] for r in one.history] == [r.metrics["bytes_up"] for r in other.history]
    assert [r.metrics["bytes_down"] for r in one.history] == [r.metrics["bytes_down"] for r in other.history]
    assert all(nonempty(record.metrics["staleness_max"] == 0 for record in other.history))


@pytest.mark.parametrize("exponent", [0.0, 0.5, 2.0])
def test_a_step_is_the_weighted_mean_of_scaled_updates_of_earlier_parameters(exponent: float) -> None:
    """Recomputed from the parameters after each step, which are written down as they come."""
    made = asynchronous(3, exponent, rounds=8)
    run = tiny.federation(made, CORPUS)
    again = tiny.federation(made, CORPUS).fleet
    flats, largest = [run.flat.copy()], 0
    for record in nonempty(run.run()):
        versions = Schedule(made, run.trainees).step(record.round).versions
        change, total = np.zeros(run.flat.size), 0
        for client, version in nonempty(versions.items()):
            (reply,) = again.train(flats[version], record.round, [client])
            update = run.decoder.update(reply.payload, client, flats[version], record.round)
            stale = record.round - 1 - version
            largest = max(largest, stale)
            for name, view in run.layout.views(change).items():
                rows = slice(None) if update.rows is None or name != "embedding.weight" else update.rows
                view[rows] += update.samples * (1 + stale) ** -exponent * update.tensors[name]
            total += update.samples
        np.testing.assert_allclose(run.flat, flats[-1] + change / total, atol=1e-6)
        stale = [record.round - 1 - version for version in versions.values()]
        assert record.metrics["staleness_mean"] == pytest.approx(np.mean(stale))
        assert record.metrics["staleness_max"] == max(stale)
        assert record.metrics["simulated_seconds"] > 0
        assert record.metrics["clients_trained"] == 3
        flats.append(run.flat.copy())
    assert largest > 1


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedavg", {}),
        ("fedprox", {"server": {"aggregation": "median"}, "participation": {"dropout": 0.5}}),
        ("ditto", {"server": {"optimizer": {"name": "adam", "lr": 0.01}}, "uplink": [{"clip": {"norm": 0.5}}]}),
    ],
)
def test_a_run_has_the_same_bits_in_any_packing_and_after_an_interruption(method: Any, changes: Any) -> None:
    check_run(asynchronous(2, rounds=5, method=method, **changes))


def test_a_run_that_goes_on_has_the_parameters_of_updates_that_have_not_come(tmp_path: Path) -> None:
    made = asynchronous(1, rounds=9, participation={"fraction": 0.8})
    whole = tiny.federation(made, CORPUS)
    list(whole.run())
    assert max(record.metrics["staleness_max"] for record in whole.history) > 2
    for stop in (4, 7):
        folder = tmp_path / str(stop)
        first = start(made, CORPUS, partial(LocalFleet, made, CORPUS), folder)
        next(record for record in first.run() if record.round == stop)
        second = start(made, CORPUS, partial(LocalFleet, made, CORPUS), folder)
        assert len(second.history) == stop
        list(second.run())
        assert np.array_equal(second.flat, whole.flat)
        for name in nonempty(("staleness_mean", "simulated_seconds_total", "updates_begun_total", "loss")):
            assert [one.metrics[name] for one in second.history] == [one.metrics[name] for one in whole.history]
        assert final(second) == final(whole)


def test_a_step_whose_clients_all_fail_is_not_repeated_since_no_others_have_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    training = tiny.TRAINING | {"rounds": 3, "optimizer": {"name": "sgd", "lr": 1e38}}
    participation = {"on_client_error": "skip", "fraction": 0.6, "pace": {}}
    made = tiny.experiment(participation=participation, server={"buffer": {"size": 2}}, training=training)
    told = r"^round 1: 0 of 2 clients completed it, fewer than the 1 of participation.min_clients; client "
    with pytest.raises(UserError, match=told):
        list(tiny.federation(made, CORPUS).run())
    assert "another sample" not in caplog.text


def test_more_updates_than_clients_are_refused() -> None:
    with pytest.raises(UserError, match=r"server.buffer.size: 8 updates of different clients, and there are 7 clients"):
        check_sizes(asynchronous(8), 7)
