"""Simulated time: how long local updates take, and which clients can be reached at what time.

It depends on the experiment alone. No computation waits for it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.config.participation import Availability, Pareto
from fedtext.errors import UserError
from fedtext.seeding import generator

SEARCHED = 10_000  # hours in which a round looks for enough clients: a year of days of 24


def available(availability: Availability, seed: int, hour: int, clients: int, again: str = "") -> NDArray[np.bool_]:
    """Return which of ``clients`` clients can be reached in an hour, by id.

    Args:
        availability: How probable that is.
        seed: The experiment's seed.
        hour: Number of the hour; without ``hour_s`` that of the round.
        clients: Number of clients.
        again: Tells attempts at the round apart.
    """
    noon_K = generator(seed, "noon").random(clients)
    light_K = (1 + np.cos(2 * np.pi * (hour / availability.day - noon_K))) / 2
    chance_K = availability.night + (1 - availability.night) * light_K
    return generator(seed, f"availability{again}", hour).random(clients) < chance_K


class Hours:
    """The hours of the simulated clock, in each of which other clients can be reached.

    Args:
        experiment: The experiment.
        ids: Ids of the clients that train.
    """

    def __init__(self, experiment: Experiment, ids: range) -> None:
        availability = experiment.participation.availability
        assert availability is not None
        assert availability.hour_s is not None
        self.availability, self.length, self.seed, self.ids = availability, availability.hour_s, experiment.seed, ids
        self.asked = experiment.participation.min_clients
        self._last: tuple[int, NDArray[np.int64]] | None = None

    def of(self, seconds: float) -> int:
        """Return the number of the hour at a time since the beginning of the run, from 0."""
        return int(seconds // self.length)

    def begins(self, hour: int) -> float:
        """Return the time at which an hour begins, in seconds since the beginning of the run."""
        return hour * self.length

    def there(self, hour: int) -> NDArray[np.int64]:
        """Return the ids of the clients that can be reached in an hour, ascending."""
        if self._last is None or self._last[0] != hour:
            found_K = available(self.availability, self.seed, hour, self.ids.stop)[self.ids.start :]
            self._last = hour, np.flatnonzero(found_K) + self.ids.start
        return self._last[1]

    def opens(self, seconds: float, least: int = 1) -> tuple[int, float]:
        """Return the first hour from a time on in which enough clients can be reached, and the seconds until then.

        Args:
            seconds: The time, since the beginning of the run.
            least: How many clients are enough.

        Raises:
            UserError: There is no such hour among the next ``SEARCHED``.
        """
        first = self.of(seconds)
        for hour in range(first, first + SEARCHED):
            if len(self.there(hour)) >= least:
                return hour, max(0.0, self.begins(hour) - seconds)
        raise UserError(
            f"participation.availability: in {SEARCHED:,} hours from hour {first} on there is none in which {least} of "
            f"{len(self.ids)} clients can be reached: raise night"
            + (", or lower participation.min_clients" if least == self.asked else "")
        )


def hours(experiment: Experiment, ids: range) -> Hours | None:
    """Return the hours of an experiment; None if they are not those of a simulated clock.

    Args:
        experiment: The experiment.
        ids: Ids of the clients that train.
    """
    availability = experiment.participation.availability
    return Hours(experiment, ids) if availability and availability.hour_s else None


def seconds_of(experiment: Experiment, samples: int, client: int, now: float) -> float:
    """Return the simulated seconds of a local update.

    Args:
        experiment: Its ``participation.pace`` says how long clients take.
        samples: n_k of the client.
        client: Id of the client.
        now: What differs in every round, drawn from a standard normal distribution.
    """
    pace = experiment.participation.pace
    assert pace is not None
    speed = generator(experiment.seed, "speed", client=client)
    read = samples * experiment.training.local_epochs
    if isinstance(pace.spread, Pareto):
        times = (2 * (1 - speed.random())) ** (-1 / pace.spread.pareto)  # 1 - random() is above 0
        return float(read / pace.texts_per_second * math.exp(pace.jitter * now) * times)
    return float(read / pace.texts_per_second * math.exp(pace.jitter * now - pace.spread * speed.standard_normal()))
