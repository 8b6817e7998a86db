"""The clients of a round. They depend on the experiment alone, so that every process can compute them."""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from fedtext.config.experiment import Experiment
from fedtext.config.participation import Participation
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.seeding import generator
from fedtext.server.clock import available, hours, seconds_of
from fedtext.server.fleet import ClientTable
from fedtext.state.noise_key import NoiseKey

HIDING = 3  # clients whose sum hides what each sent from the others


def most(experiment: Experiment, clients: int) -> int:
    """Return the largest number of ``clients`` clients that a round can have."""
    return experiment.participation.largest(clients)


def least(experiment: Experiment) -> int:
    """Return the number of clients that have to complete a round at least."""
    asked = experiment.participation.min_clients
    return max(asked, HIDING) if experiment.server.secure_aggregation else asked


def adversaries(experiment: Experiment, clients: int) -> frozenset[int]:
    """Return the ids of the adversaries among ``clients`` clients. Those of a smaller share are among them."""
    if experiment.adversaries is None:
        return frozenset()
    count = round(experiment.adversaries.fraction * clients)
    return frozenset(generator(experiment.seed, "adversaries").permutation(clients)[:count].tolist())


def check_adversaries(experiment: Experiment, corpus: Corpus, clients: int) -> None:
    """Check that an attack fits a corpus.

    Args:
        experiment: The experiment.
        corpus: The corpus.
        clients: Number of its clients.

    Raises:
        UserError: It does not, or no client would be an adversary.
    """
    asked = experiment.adversaries
    if asked is None:
        return
    if corpus.clients and (problem := asked.attack.problem(corpus)):  # a header's corpus was checked as a whole
        raise UserError(problem)
    if asked.fraction and not adversaries(experiment, clients):
        raise UserError(
            f"adversaries.fraction: {asked.fraction:g} of {clients} clients is less than half a client: raise it to "
            f"{1 / clients:.3g}, or set it to 0"
        )


@dataclass(frozen=True)
class Returned:
    """Which of the clients sampled for a round return in time.

    Attributes:
        clients: Ids of those that do, ascending.
        late: Ids of the others.
        seconds: Simulated seconds of the round; None without ``participation.pace``.
        dropped: Ids of clients that were sampled too, and drop out.
        started: Ids of those that receive the round's parameters, with ``server.buffer``; None: all but the dropped.
    """

    clients: list[int]
    late: list[int]
    seconds: float | None
    dropped: list[int] = field(default_factory=list)
    started: Sequence[int] | None = None

    @property
    def received(self) -> list[int]:
        """Ids of the clients that receive the parameters of the round."""
        return [*self.clients, *self.late] if self.started is None else list(self.started)

    @property
    def invited(self) -> list[int]:
        """Ids of all clients that were sampled, ascending."""
        return sorted([*self.clients, *self.late, *self.dropped])


def returned(
    experiment: Experiment,
    ids: Sequence[int],
    samples: Mapping[int, int],
    round_: int,
    attempt: int = 1,
    clients: int | None = None,
) -> Returned:
    """Return which of the sampled clients return before a round ends.

    It ends when as many as it needs have returned, or at the deadline. Clients that are late have received the
    parameters, and keep their private state.

    Args:
        experiment: Its ``participation`` says how long clients take.
        ids: Ids of the clients that were sampled, and have not dropped out.
        samples: n_k of each of them.
        round_: Number of the round.
        attempt: Number of the attempt at the round, from 1.
        clients: Number of all clients; None: that of ``samples``.
    """
    config = experiment.participation
    if config.pace is None:
        return Returned(list(ids), [], None)
    again = _again(attempt)
    seconds = {}
    for i in ids:
        now = float(generator(experiment.seed, f"pace{again}", round_, i).standard_normal())
        seconds[i] = seconds_of(experiment, samples[i], i, now)
    limit = math.inf if config.deadline_s is None else config.deadline_s
    needed = most(experiment, len(samples) if clients is None else clients)
    first = [i for i in sorted(ids, key=lambda i: (seconds[i], i)) if seconds[i] <= limit][:needed]
    waited = config.deadline_s is not None and len(first) < min(needed, len(ids))
    ended = limit if waited else max((seconds[i] for i in first), default=0.0)
    return Returned(sorted(first), sorted(set(ids) - set(first)), ended)


def cohort(
    experiment: Experiment, clients: ClientTable, round_: int, noise: NoiseKey, attempt: int = 1, began: float = 0.0
) -> Returned:
    """Return the clients that are sampled for a round and do not drop out: those that return in time, and the others.

    With ``availability.hour_s`` the round waits, in simulated time, for an hour in which as many clients can be reached
    as have to complete it.

    Args:
        experiment: The experiment.
        clients: All clients that can train.
        round_: Number of the round.
        noise: The run's key, see ``sampled``.
        attempt: Number of the attempt at the round, from 1.
        began: When the attempt begins, in simulated seconds since the beginning of the run.
    """
    clock = hours(experiment, clients.ids)
    hour, waited = clock.opens(began, least(experiment)) if clock else (None, 0.0)
    invited = _sampled(experiment, clients.ids, round_, noise, attempt, hour)
    ids = _without_dropped(experiment, invited, round_, _again(attempt))
    samples = {client: int(clients.samples[client - clients.ids.start]) for client in ids}
    made = returned(experiment, ids, samples, round_, attempt, len(clients))
    seconds = None if made.seconds is None else waited + made.seconds
    return replace(made, dropped=sorted(set(invited) - set(ids)), seconds=seconds)


def answering(experiment: Experiment, clients: Sequence[int], round_: int, attempt: int = 1) -> list[int]:
    """Return which of the clients whose updates were received are still there at the end of a round.

    Args:
        experiment: Its ``participation.dropout`` is the probability with which each is not.
        clients: Ids of the clients.
        round_: Number of the round.
        attempt: Number of the attempt at the round, from 1.
    """
    return _without_dropped(experiment, clients, round_, f"{_again(attempt)}/end")


def vanished(experiment: Experiment, dropped: Sequence[int], round_: int, attempt: int = 1) -> list[int]:
    """Return which of the clients that drop out of a round do so before they have shared their keys: one half.

    Args:
        experiment: The experiment.
        dropped: Ids of the clients that drop out.
        round_: Number of the round.
        attempt: Number of the attempt at the round, from 1.
    """
    seed, purpose = experiment.seed, f"vanished{_again(attempt)}"
    return [i for i in dropped if generator(seed, purpose, round_, i).random() < 1 / 2]


def _again(attempt: int) -> str:
    """Return what the purpose of a draw ends with, so that each attempt at a round has its own."""
    return f"/{attempt}" if attempt > 1 else ""


def sampled(experiment: Experiment, clients: range, round_: int, noise: NoiseKey, attempt: int = 1) -> list[int]:
    """Sample the clients of a round.

    Args:
        experiment: Its ``participation`` defines the sample.
        clients: Ids of all clients.
        round_: Number of the round.
        noise: The run's key. A Poisson sample amplifies the guarantee of the server's noise only if it is unknown, and
            that of several runs together only if it does not depend on theirs: with this noise it is drawn from the
            key, as with any secret one. Without, experiments with the same seed have the same samples.
        attempt: Number of the attempt at the round, from 1; each has a sample of its own.

    Returns:
        Ids, ascending, without those that drop out. A Poisson sample may be empty, and any if no client is available.
    """
    invited = _sampled(experiment, clients, round_, noise, attempt)
    return _without_dropped(experiment, invited, round_, _again(attempt))


def _sampled(
    experiment: Experiment, clients: range, round_: int, noise: NoiseKey, attempt: int, hour: int | None = None
) -> list[int]:
    """Sample the clients of a round, also those that drop out. See ``sampled``; ``hour`` is of the simulated clock."""
    config, seed = experiment.participation, experiment.seed
    size = config.over_selected(most(experiment, len(clients)))
    again = _again(attempt)
    if config.sampling in ("separated", "epochs"):
        return _planned(config, seed, clients).sample(round_)
    ids_K = np.arange(clients.start, clients.stop)
    if config.availability:
        when = (round_, clients.stop, again) if hour is None else (hour, clients.stop)
        ids_K = ids_K[available(config.availability, seed, *when)[ids_K]]
    if config.sampling == "poisson":
        drawn = f"cohort{again}", round_
        rng = noise.generator(*drawn) if experiment.server.noise else noise.paired(seed, *drawn)
        ids_K = ids_K[rng.random(len(ids_K)) < config.fraction]
    elif size < len(ids_K):
        ids_K = np.sort(generator(seed, f"cohort{again}", round_).choice(ids_K, size, replace=False))
    return list(map(int, ids_K))


def _without_dropped(experiment: Experiment, ids: Sequence[int], round_: int, again: str) -> list[int]:
    chance, seed = experiment.participation.dropout, experiment.seed
    if not chance:
        return list(ids)
    return [i for i in ids if generator(seed, f"dropout{again}", round_, i).random() >= chance]


class _Plan:
    """The samples of ``separated`` and ``epochs``, which depend on earlier ones. Each is computed once.

    Args:
        config: The keys.
        seed: The experiment's seed.
        ids: Ids of all clients.
    """

    def __init__(self, config: Participation, seed: int, ids: range) -> None:
        self.config, self.seed, self.ids_K = config, seed, np.arange(ids.start, ids.stop)
        self.size = config.over_selected(config.largest(len(ids)))
        self.free_K = np.zeros(len(ids), int)  # the first round in which each can be sampled again
        self.samples: list[list[int]] = []  # of the first rounds
        self.lock = threading.Lock()
        if config.sampling == "epochs":
            order_K = generator(seed, "epochs").permutation(self.ids_K)
            self.samples = [sorted(part.tolist()) for part in np.array_split(order_K, config.epoch)]

    def sample(self, round_: int) -> list[int]:
        """Return the ids of a round's clients, ascending."""
        if self.config.sampling == "epochs":
            return self.samples[(round_ - 1) % self.config.epoch]
        with self.lock:
            while len(self.samples) < round_:
                self._next(len(self.samples) + 1)
        return self.samples[round_ - 1]

    def _next(self, round_: int) -> None:
        there_K = self.free_K <= round_
        if self.config.availability:
            there_K &= available(self.config.availability, self.seed, round_, int(self.ids_K.max()) + 1)[self.ids_K]
        (places,) = np.nonzero(there_K)
        if len(places) > self.size:
            places = generator(self.seed, "cohort", round_).choice(places, self.size, replace=False)
        self.free_K[places] = round_ + (self.config.separation or 1)
        self.samples.append(sorted(self.ids_K[places].tolist()))


_planned = lru_cache(maxsize=16)(_Plan)
