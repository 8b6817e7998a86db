"""Simulated time: hours in which other clients can be reached, in rounds and without, and heavy-tailed speeds."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.config.participation import Availability, Participation
from fedtext.errors import UserError
from fedtext.seeding import generator
from fedtext.server.buffer import Schedule
from fedtext.server.clock import Hours, available, hours, seconds_of
from fedtext.server.sampling import cohort, returned
from fedtext.state.noise_key import NoiseKey
from fedtext.testing.runs import check_run
from tests import tiny
from tests.fedtext.server.test_buffer import CORPUS, asynchronous, table
from tests.loops import nonempty

NOISE = NoiseKey(bytes(16))
SIX = tiny.corpus(clients=6, texts=2)
DARK = {"day": 4, "night": 0, "hour_s": 0.05}  # a local update of SIX takes about as long


def in_rounds(rounds: int = 4, **participation: Any) -> Any:
    training = tiny.TRAINING | {"rounds": rounds}
    return tiny.experiment(
        participation={"pace": {}} | participation, training=training, evaluation={"personalize": None}
    )


class Watched(Schedule):
    """A schedule that notes when each client begins."""

    def __init__(self, *given: Any) -> None:
        self.begun: list[tuple[float, int]] = []
        super().__init__(*given)

    def _begin(self, client: int, *given: Any) -> None:
        self.begun.append((self.now, client))
        super()._begin(client, *given)


def hours_of(experiment: Any, clients: int) -> Hours:
    found = hours(experiment, range(clients))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("clients", "fraction", "hour_s", "dropout"), [(60, 0.2, 0.3, 0.0), (8, 0.5, 5.0, 0.3), (5, 1.0, 0.01, 0.0)]
)
def test_who_begins_can_be_reached_at_that_hour(clients: int, fraction: float, hour_s: float, dropout: float) -> None:
    """Places are free only while nobody else can be reached, and time never goes back."""
    availability = {"day": 6, "night": 0.05, "hour_s": hour_s}
    made = asynchronous(3, participation={"fraction": fraction, "dropout": dropout, "availability": availability})
    schedule, clock = Watched(made, table(clients)), hours_of(made, clients)
    waited, seconds = 0, 0.0
    for round_ in range(1, 60):
        step = schedule.step(round_)
        seconds += step.seconds
        assert seconds == pytest.approx(schedule.now)
        assert len(step.versions) == 3
        assert step.seconds >= 0
    times = [time for time, _ in schedule.begun]
    assert times == sorted(times)
    for time, client in nonempty(schedule.begun):
        hour = clock.of(time * (1 + 1e-12))  # an hour that has just begun
        assert client in clock.there(hour), (time, client)
        waited += time > 0 and time == clock.begins(hour)
    assert waited or clients == 60, "no place was free until the next hour"


def test_nobody_at_any_time_is_waited_for_and_the_night_is_part_of_the_clock() -> None:
    """Updates that take next to no time: nearly all of the clock is waiting for an hour."""
    fast = {"pace": {"texts_per_second": 1e9}, "fraction": 0.1}
    made = asynchronous(5, participation=fast | {"availability": {"day": 12, "night": 0, "hour_s": 100}})
    schedule, clock = Schedule(made, table(5)), hours_of(made, 5)
    for round_ in range(1, 25):
        before = schedule.now
        step = schedule.step(round_)
        found = {hour: set(clock.there(hour)) for hour in range(clock.of(before), schedule.hour + 1)}
        reached: set[int] = set().union(*found.values())
        assert set(step.versions) <= reached
        assert step.seconds == pytest.approx(schedule.now - before)
    assert schedule.now > 25 * 100, "an hour in which all five begin is rare"
    assert schedule.now % 100 < 1


def test_a_round_is_of_the_hour_in_which_it_begins_and_waits_for_one_with_somebody() -> None:
    made = in_rounds(fraction=0.7, availability=DARK)
    clock, waited, sizes = hours_of(made, 3), 0, set()
    for began in nonempty(np.arange(0, 4, 0.03).tolist()):
        hour, wait = clock.opens(began)
        sample = cohort(made, table(3, 8), 3, NOISE, began=began)
        assert set(sample.clients) <= set(clock.there(hour))
        assert sample.clients
        plain = returned(made, sample.clients, dict.fromkeys(range(3), 8), 3).seconds
        assert plain is not None
        assert sample.seconds == pytest.approx(wait + plain)
        assert [earlier for earlier in range(clock.of(began), hour) if len(clock.there(earlier))] == []
        waited, sizes = waited + (wait > 0), {*sizes, len(sample.clients)}
    assert waited
    assert sizes == {1, 2}
    attempts = [cohort(made, table(3, 8), 3, NOISE, attempt, began=0.5).clients for attempt in (1, 2, 3)]
    assert {*attempts[0], *attempts[1], *attempts[2]} <= set(clock.there(clock.opens(0.5)[0]))


@pytest.mark.parametrize(("asked", "least"), [({"min_clients": 3}, 3), ({}, 3)], ids=["min_clients", "secure"])
def test_a_round_waits_for_as_many_clients_as_have_to_complete_it(asked: dict[str, int], least: int) -> None:
    made = in_rounds(fraction=0.7, availability=DARK, **asked)
    if not asked:
        made = tiny.experiment(
            participation={"pace": {}, "fraction": 0.7, "availability": DARK},
            server={"secure_aggregation": {"threshold": 0.6}},
            evaluation={"personalize": None},
        )
    clock, waited = hours_of(made, 6), 0
    for began in nonempty(np.arange(0, 2, 0.05).tolist()):
        sample = cohort(made, table(6, 8), 3, NOISE, began=began)
        assert len(sample.clients) >= least
        hour, wait = clock.opens(began, least)
        assert [earlier for earlier in range(clock.of(began), hour) if len(clock.there(earlier)) >= least] == []
        waited += wait > clock.opens(began)[1]
    assert waited


def test_hours_that_never_have_enough_clients_end_the_run() -> None:
    """Clients with noons half a day apart are never there together if a day has two hours, and a night has nobody."""
    made = in_rounds(fraction=1.0, availability={"day": 2, "night": 0, "hour_s": 1}, min_clients=40)
    with pytest.raises(UserError, match=r"in 10,000 hours from hour 7 on there is none in which 40 of 40 clients can"):
        cohort(made, table(40, 8), 3, NOISE, began=7.5)


def test_rounds_of_a_run_follow_the_clock(tmp_path: Path) -> None:
    made = in_rounds(8, fraction=0.5, availability=DARK)
    federation = tiny.federation(made, SIX, tiny.Recording)
    total, begun = 0.0, 0
    for record in nonempty(federation.run()):
        expected = cohort(made, federation.trainees, record.round, NOISE, began=total)
        assert [reply.client for reply in federation.fleet.received] == expected.clients
        total, begun = total + (expected.seconds or 0.0), begun + len(expected.received)
        assert record.metrics["simulated_seconds_total"] == pytest.approx(total)
        assert record.metrics["updates_begun_total"] == begun
    check_run(made.model_copy(update={"training": made.training.model_copy(update={"rounds": 4})}))


def test_asynchronous_runs_by_the_hour_have_the_same_bits_in_any_packing_and_after_an_interruption() -> None:
    availability = {"day": 3, "night": 0, "hour_s": 0.1}
    made = asynchronous(2, rounds=6, participation={"fraction": 0.6, "availability": availability})
    check_run(made)
    always = asynchronous(2, rounds=6, participation={"fraction": 0.6})
    one, other = (tiny.federation(each, CORPUS) for each in (made, always))
    list(one.run()), list(other.run())
    assert not np.array_equal(one.flat, other.flat)


def test_with_everybody_available_an_asynchronous_run_is_that_without_hours() -> None:
    """Draws of hours are none of those of the schedule."""
    always = {"fraction": 0.6, "availability": {"night": 1, "hour_s": 0.1}}
    one, other = (Schedule(asynchronous(2, participation=made), table(9)) for made in (always, {"fraction": 0.6}))
    for round_ in nonempty(range(1, 30)):
        assert one.step(round_) == other.step(round_)


def test_clients_are_there_at_their_noon_and_seldom_at_their_midnight() -> None:
    """Noons are a draw of the seed; with a day of a thousand hours each has one within 0.05 % of a day."""
    asked, noon_K = Availability(day=1000, night=0.1, hour_s=1), generator(0, "noon").random(50)
    days = [np.round(1000 * (noon_K + day)).astype(int) for day in range(20)]
    noon, midnight = (
        np.mean([[available(asked, 0, hour + late, 50)[k] for k, hour in enumerate(hours_K)] for hours_K in days])
        for late in (0, 500)
    )
    assert noon > 0.99
    assert 0.07 < midnight < 0.13


def test_hours_are_of_the_clients_that_train_and_open_when_they_begin() -> None:
    made = in_rounds(fraction=0.7, availability=DARK | {"hour_s": 10})
    clock = Hours(made, range(3, 9))
    asked = made.participation.availability
    for hour in nonempty(range(12)):
        assert clock.there(hour).tolist() == [k for k in np.flatnonzero(available(asked, made.seed, hour, 9)) if k >= 3]
    later = next(hour for hour in range(1, 99) if len(clock.there(hour)) >= 4)
    before = next(hour for hour in range(later) if all(len(clock.there(one)) < 4 for one in range(hour, later)))
    assert clock.opens(10 * before + 2.5, 4) == (later, 10 * (later - before) - 2.5)
    assert clock.opens(10 * later + 2.5, 4) == (later, 0.0)


def test_seconds_are_texts_over_speed_times_what_differs_in_every_round() -> None:
    made = in_rounds(pace={"texts_per_second": 4, "jitter": 0.3, "spread": 0.7})
    speed = np.exp(0.7 * generator(made.seed, "speed", client=5).standard_normal())
    median = 8 * made.training.local_epochs / (4 * speed)
    for now in nonempty((0.0, 1.0, -2.0)):
        assert seconds_of(made, 8, 5, now) == pytest.approx(median * np.exp(0.3 * now))
    heavy = in_rounds(pace={"texts_per_second": 4, "jitter": 0.3, "spread": {"pareto": 2.0}})
    assert seconds_of(heavy, 8, 5, 1.0) == pytest.approx(seconds_of(heavy, 8, 5, 0.0) * np.exp(0.3))


@pytest.mark.parametrize("shape", [0.9, 2.0])
def test_heavy_tailed_times_have_median_one_and_fall_as_a_power(shape: float) -> None:
    """P(1 / a_k > x) = 1 / (2 x^shape), from its smallest value 2^(-1 / shape) on."""
    made = in_rounds(pace={"texts_per_second": 4, "jitter": 0, "spread": {"pareto": shape}})
    each = 8 * made.training.local_epochs / 4
    times = np.array([seconds_of(made, 8, client, 0.0) for client in range(4000)]) / each
    assert times.min() >= 2 ** (-1 / shape)
    for x in nonempty((1.0, 2.0, 5.0, 10.0)):
        share = 1 / (2 * x**shape)
        assert abs((times > x).mean() - share) < 4 * (share * (1 - share) / 4000) ** 0.5
    assert seconds_of(made, 8, 7, 1.0) == seconds_of(made, 8, 7, 0.0), "without jitter"


WRONG = {
    "hours without a clock": ({"availability": {"hour_s": 1}}, "availability.hour_s: it needs to be known how long"),
    "hours of a plan": (
        {"availability": {"hour_s": 1}, "pace": {}, "sampling": "separated", "separation": 2},
        "availability.hour_s: samples of sampling: separated are planned by rounds",
    ),
}


@pytest.mark.parametrize(("keys", "message"), WRONG.values(), ids=list(WRONG))
def test_hours_that_need_other_keys_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Participation(**keys)


def test_a_day_of_too_many_hours_is_refused() -> None:
    with pytest.raises(ValueError, match="with hour_s a day has at most 1440: lower it"):
        Availability(day=1441, hour_s=1)
    assert Availability(day=1441).day == 1441
