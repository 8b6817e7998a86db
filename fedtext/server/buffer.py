"""Asynchronous training (FedBuff, Nguyen et al. 2022): the server makes a step whenever enough updates have come.

Clients train all the time, each on the parameters that it received when it began. A round is one step of the server:
the updates that have come since the step before. Who begins and returns when depends on the experiment alone, by a
simulated clock, so that every process can compute it; no computation waits for that clock. The parameters on which
updates are based that have not come yet are part of a run's state.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.config.server import Buffer
from fedtext.messages import Reply, Update
from fedtext.seeding import generator
from fedtext.server.clock import hours, seconds_of
from fedtext.server.fleet import ClientTable, Fleet
from fedtext.server.sampling import Returned

PREFIX = "#buffer/"  # of earlier parameters among the tensors of a checkpoint


@dataclass(frozen=True)
class Step:
    """The work that precedes a step of the server.

    Attributes:
        versions: Of each client whose update has come, the number of steps behind the parameters it was trained on.
        started: Ids of the clients that have begun since the step before, on the parameters after that step.
        seconds: Simulated seconds since the step before.
        awaited: The same numbers of steps, of the clients that are still training.
    """

    versions: Mapping[int, int]
    started: Sequence[int]
    seconds: float
    awaited: frozenset[int]


@dataclass(order=True, frozen=True)
class _Training:
    """A client that is training: when it returns, and on which parameters it began."""

    ends: float
    client: int
    version: int = field(compare=False)
    drops: bool = field(compare=False)


class Schedule:
    """When clients begin and return.

    As many clients as a round would sample train at the same time. When one returns or drops out, another begins, drawn
    from those that neither are training nor have an update in the buffer. With ``availability`` it is drawn from those
    of them that can be reached at that hour; if there is none, its place is free until the next hour in which there is
    one. Who has begun goes on whatever the hour.

    Args:
        experiment: Its ``participation`` says how many train, and how long they take.
        clients: The clients.
    """

    def __init__(self, experiment: Experiment, clients: ClientTable) -> None:
        assert experiment.server.buffer is not None
        self.experiment, self.clients, self.size = experiment, clients, experiment.server.buffer.size
        self.together = experiment.participation.largest(len(clients))
        self.steps: list[Step] = []
        self.now, self.hour, self.hours = 0.0, 0, hours(experiment, clients.ids)
        self.training: list[_Training] = []  # a heap
        self.busy: set[int] = set()  # who trains

    def step(self, round_: int) -> Step:
        """Return what comes before the step of a round, from 1."""
        while len(self.steps) < round_:
            self.steps.append(self._next())
        return self.steps[round_ - 1]

    def _next(self) -> Step:
        version, began, started = len(self.steps), self.now, list[int]()
        draws = generator(self.experiment.seed, "buffer", version + 1)
        versions: dict[int, int] = {}
        while len(versions) < self.size:
            while len(self.training) < self.together and (client := self._idle(versions, draws)) is not None:
                started.append(client)
                self._begin(client, version, draws)
            if self._waits(versions):
                continue
            first = heapq.heappop(self.training)
            self._at(first.ends)
            self.busy.remove(first.client)
            if not first.drops:
                versions[first.client] = first.version
        awaited = frozenset(each.version for each in self.training)
        return Step(versions, started, self.now - began, awaited)

    def _at(self, seconds: float) -> None:
        """Set the clock."""
        self.now = seconds
        if self.hours:
            self.hour = max(self.hour, self.hours.of(seconds))

    def _waits(self, held: Mapping[int, int]) -> bool:
        """Go on to the next hour if a place is free for a client that may come then, and no update comes before."""
        if not self.hours or len(self.training) == self.together or self._taken(held) == len(self.clients.ids):
            return False
        begins = self.hours.begins(self.hour + 1)
        if self.training and self.training[0].ends <= begins:
            return False
        self.now, self.hour = max(self.now, begins), self.hour + 1
        return True

    def _taken(self, held: Mapping[int, int]) -> int:
        """Return the number of clients that train or have an update in the buffer."""
        return len(self.busy) + len(held)

    def _idle(self, held: Mapping[int, int], draws: np.random.Generator) -> int | None:
        """Draw a client that can begin; None if there is none."""
        ids = self.hours.there(self.hour) if self.hours else self.clients.ids
        if not len(ids) or 2 * self._taken(held) > len(ids):
            left = [client for client in map(int, ids) if client not in self.busy and client not in held]
            return left[draws.integers(len(left))] if left else None
        while True:
            client = int(ids[draws.integers(len(ids))])
            if client not in self.busy and client not in held:
                return client

    def _begin(self, client: int, version: int, draws: np.random.Generator) -> None:
        samples, now = int(self.clients.samples[client - self.clients.ids.start]), float(draws.standard_normal())
        ends = self.now + seconds_of(self.experiment, samples, client, now)
        drops = bool(draws.random() < self.experiment.participation.dropout)
        heapq.heappush(self.training, _Training(ends, client, version, drops))
        self.busy.add(client)


class UpdateBuffer:
    """The updates of a round, each on the parameters that its client received.

    Args:
        config: The keys.
        experiment: The experiment.
        clients: The clients that train.
        fleet: All clients, where they are.
        kept: The tensors of a checkpoint, with those that ``to_keep`` returned; None: the run begins.
    """

    def __init__(
        self,
        config: Buffer,
        experiment: Experiment,
        clients: ClientTable,
        fleet: Fleet,
        kept: Mapping[str, NDArray[np.float32]] | None,
    ) -> None:
        self.config, self.fleet, self.schedule = config, fleet, Schedule(experiment, clients)
        self.earlier = {
            int(name[len(PREFIX) :]): flat for name, flat in (kept or {}).items() if name.startswith(PREFIX)
        }
        self.handles: dict[int, Any] = {}  # of the parameters, by the number of steps before them

    def sample(self, round_: int) -> Returned:
        """Return the clients whose updates a round has, those with the oldest parameters first."""
        step = self.schedule.step(round_)
        ids = sorted(step.versions, key=lambda client: (step.versions[client], client))
        return Returned(ids, [], step.seconds, started=step.started)

    def begin(self, round_: int, flat: NDArray[np.float32], handle: Any) -> None:
        """Take the parameters on which clients begin until the step of a round.

        Args:
            round_: Number of the round.
            flat: The parameters.
            handle: Their handle in the fleet.
        """
        self.earlier[round_ - 1], self.handles[round_ - 1] = flat, handle
        needed = self._needed(round_)
        for held in (self.earlier, self.handles):
            for version in held.keys() - needed:
                del held[version]

    def _needed(self, round_: int) -> set[int]:
        before = self.schedule.step(round_ - 1).awaited if round_ > 1 else frozenset()
        return {*before, round_ - 1}

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        """Run the local updates of a round. The arguments and replies are those of ``Fleet.train``."""
        versions, groups = self.schedule.step(round_).versions, []
        for version in sorted(set(versions.values())):
            if version not in self.handles:  # of a run that goes on
                self.handles[version] = self.fleet.broadcast(self.earlier[version])
            groups.append((self.handles[version], [client for client in cohort if versions[client] == version]))
        return self.fleet.train_each(groups, round_)

    def received(self, client: int, round_: int) -> NDArray[np.float32]:
        """Return the parameters on which the update of a client in a round is based."""
        return self.earlier[self.schedule.step(round_).versions[client]]

    def scaled(self, updates: Iterator[Update], round_: int) -> Iterator[Update]:
        """Yield updates times (1 + t)^-a, of which t is the number of steps since their client began."""
        for update in updates:
            factor = np.float32((1.0 + self._stale(update.client, round_)) ** -self.config.staleness_exponent)
            tensors = {name: tensor * factor for name, tensor in update.tensors.items()}
            yield replace(update, tensors=tensors)

    def _stale(self, client: int, round_: int) -> int:
        return round_ - 1 - self.schedule.step(round_).versions[client]

    def metrics(self, round_: int) -> dict[str, float]:
        """Return the mean and the largest staleness of a round's updates, in steps of the server."""
        stale = [self._stale(client, round_) for client in self.schedule.step(round_).versions]
        return {"staleness_mean": sum(stale) / len(stale), "staleness_max": float(max(stale))}

    def to_keep(self, round_: int) -> dict[str, NDArray[np.float32]]:
        """Return the parameters, for a checkpoint after a round, on which updates are based that have not come."""
        awaited = self.schedule.step(round_).awaited
        return {f"{PREFIX}{version}": flat for version, flat in self.earlier.items() if version in awaited}
