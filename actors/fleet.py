"""The fleet whose clients are Ray actors."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.util.placement_group import PlacementGroup

from actors import crew, moves, patience
from actors.caller import Caller
from actors.calls import grouped
from actors.client import Host
from actors.placement import Dealt, Plan, assign, homes, unused_gpus
from actors.shipment import Shipment
from fedtext.client.participants import stacks
from fedtext.config.engine import stack_size
from fedtext.config.experiment import Experiment
from fedtext.evaluation import Evaluated
from fedtext.messages import Reply
from fedtext.parameters import withheld
from fedtext.server.aggregation import Sum
from fedtext.state.noise_key import NoiseKey
from fedtext.state.trained import ClientPart


class RayFleet(Caller):
    """Clients packed into ``plan.actors`` actors, one in each client bundle of ``group``. See ``Fleet``.

    ``trial`` names the trial in the actors' metrics (actors/metrics.py), and ``measured`` has what earlier attempts of
    it took.
    """

    def __init__(
        self,
        experiment: Experiment,
        shipment: Shipment,
        unshared: Mapping[str, NDArray[np.float32]],
        noise: NoiseKey,
        plan: Plan,
        group: PlacementGroup | None = None,
        trial: str = "",
        measured: patience.Measured | None = None,
    ) -> None:
        resources = experiment.resources
        hang = math.inf if experiment.audits else resources.hang_timeout_s  # audits attack for minutes, or do nothing
        super().__init__(measured or patience.Measured(), hang, resources.round_timeout_s)
        self.clients = shipment.table
        self.noise = noise
        self.withheld = withheld(experiment, shipment.header)
        self.baselines = shipment.baselines
        self.data, self.folds = shipment.clients, experiment.sums
        self.audits, self.rounds = bool(experiment.audits), experiment.training.rounds
        self.settled = False  # whether the clients of the next round are where they stay
        self.stack, _ = stack_size(experiment, len(self.clients))
        self.seconds: dict[int, float] = {}  # of each client's last local update
        self.folding: list[int] = []  # places of the actors that added up in the last attempt
        self.bytes_up: dict[int, int] = {}  # of each client's last payload
        self.took: list[float] = []  # seconds of each local update of the last round
        self.late = 0  # local updates of the last round that had not returned in time
        self.left_out: Collection[int] = ()
        initial = ray.put(dict(unshared))
        weights = self.clients.samples
        self.block = math.lcm(self.stack, shipment.together)  # clients that stay together
        self.given = experiment, shipment.lean, initial, shipment.corpus_clients, weights, noise, trial
        self.place = plan, group
        self.newcomers = crew.Newcomers(lambda actor: actor.host.remote(*self.given, []))
        self.hired = crew.hire(plan, group, self.newcomers.later)
        self.actors = [actor for actor in self.hired if actor is not None]
        self.home: moves.Homes = Dealt(len(self.actors), self.block)
        hosted: list[list[int]] = [[] for _ in self.actors]
        if self.data:
            hosted = assign(dict(enumerate(self.clients.tokens.tolist())), len(self.actors), self.block)
            self.home = homes(hosted)
        try:
            hosts = self._host(self.actors, hosted)
        except BaseException:  # those that did start would hold their share of the cluster
            self.close()
            raise
        self.nodes = [host.node for host in hosts]
        self.machines: list[str] = [host.machine for host in hosts]
        self.addresses = {host.actor: host.address for host in hosts}  # of the actors' nodes
        self.unused_gpus = unused_gpus(plan, [host.unused_gpu for host in hosts])

    def _host(self, actors: Sequence[Any], hosted: Sequence[Sequence[int]]) -> list[Host]:
        """Have actors host these clients, and return where they are."""
        ready = [
            actor.host.remote(*self.given, members, *self._objects(members))
            for actor, members in zip(actors, hosted, strict=True)
        ]
        return self._get(ready, crew.START_TIMEOUT_S, "start the client actors", "host")

    @property
    def short(self) -> str:
        """A sentence if there are fewer actors than planned, since a node was lost, or cannot start one; else empty."""
        missing = self.hired.count(None)
        if missing and {place for place, actor in enumerate(self.hired) if actor is None} <= set(self.newcomers.later):
            return f"{missing} of {len(self.hired)} client actors could not start on their nodes, and are tried again"
        return f"{missing} of {len(self.hired)} client actors have no place until a node joins" if missing else ""

    def join(self) -> None:
        """Take in actors on nodes that have joined, once they have started. ``balance`` moves clients to them."""
        for place, (actor, host) in crew.fill(self.hired, self.newcomers, *self.place).items():
            self.hired[place] = actor
            self.actors.append(actor)
            self.nodes.append(host.node)
            self.machines.append(host.machine)
            self.addresses[host.actor] = host.address

    def broadcast(self, flat: NDArray[np.float32]) -> ray.ObjectRef:
        self.size = flat.nbytes
        return ray.put(flat)

    def exchange(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        if step == "keys":  # clients stay where their keys are until they have trained
            self._settle()
            self.settled = True
        chosen = self._by_actor(list(messages))
        calls = [
            actor.exchange.remote(step, {client: messages[client] for client in members})
            for actor, members in zip(self.actors, chosen, strict=True)
            if members
        ]
        found = self._get(calls, self.timeout, "exchange keys and shares", f"exchange {step}")
        return {client: answer for answers in found for client, answer in answers.items()}

    def _settle(self) -> None:
        """Take in actors that have started, and move clients where that pays. Every round begins with it."""
        self.join()
        self.balance()

    def train(self, handle: ray.ObjectRef, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        yield from self.train_each([(handle, cohort)], round_)

    def _call(
        self, groups: Sequence[tuple[ray.ObjectRef, Sequence[int]]], round_: int, cohort: Sequence[int]
    ) -> dict[ray.ObjectRef, list[int]]:
        """Have the actors train all clients of a round, and return the clients of each call."""
        sent = [sum(self.bytes_up.get(client, 0) for client in members) for members in self._by_actor(cohort)]
        fold = [self.folds and up > 2 * self.size for up in sent]  # a sum takes twice the bytes of the parameters
        self.folding = [place for place, folds in enumerate(fold) if folds]
        waiting, audited = {}, self.clients.audited(cohort, round_ == self.rounds) if self.audits else []
        for handle, members in groups:
            for place, hosted in enumerate(self._by_actor(members)):
                for call in grouped(stacks(hosted, self.stack, self.left_out), self.seconds, self.bytes_up, self.size):
                    reply = self.actors[place].train.remote(handle, round_, call, fold[place], audited)
                    waiting[reply] = list(chain(*call))
        return waiting

    def train_each(self, groups: Sequence[tuple[ray.ObjectRef, Sequence[int]]], round_: int) -> Iterator[Reply]:
        if not self.settled:
            self._settle()
        self.settled = False
        cohort = [client for _, members in groups for client in members]
        waiting = self._call(groups, round_, cohort)
        self.took, self.late = [], 0
        expected = patience.expected(self.measured.updates, self._by_actor(cohort))
        limit = patience.allowed(expected, self.hang, self.timeout)
        left = limit  # of waiting: the server's own work between replies does not count
        while waiting:
            began = time.monotonic()
            done, _ = ray.wait(list(waiting), timeout=max(0.0, left))
            left -= time.monotonic() - began
            if not done:
                missing = sorted(chain(*waiting.values()))
                self.late, late = len(missing), patience.told([self.clients[client].name for client in missing])
                if limit < self.timeout:
                    for hosted in self._by_actor(missing):  # so that the next attempt waits longer
                        self.measured.updates |= dict.fromkeys(hosted, limit / max(1, len(hosted)))
                    raise patience.HungActorsError(
                        f"in round {round_} local updates had not returned after {limit:.1f} s, {expected:.1f} s being "
                        f"expected: those of {late}"
                    )
                raise TimeoutError(
                    f"round {round_} took over resources.round_timeout_s = {self.timeout:g} s, waiting for {late}"
                )
            del waiting[done[0]]
            for reply in self._get(done, self.timeout, "receive replies")[0]:
                if not reply.error:
                    self.bytes_up[reply.client] = reply.bytes_up
                    self.seconds[reply.client] = self.measured.updates[reply.client] = reply.metrics["seconds"]
                    self.took.append(reply.metrics["seconds"])
                yield reply

    def partials(self, round_: int) -> Iterator[Sum]:
        if not self.folding:
            return
        waiting = [self.actors[place].partial.remote(round_) for place in self.folding]
        what, expected = f"collect the actors' sums of round {round_}", self.measured.calls.get("partials")
        left = limit = patience.allowed(expected, self.hang, self.timeout)  # without the server's own work
        while waiting:
            began = time.monotonic()
            done, waiting = ray.wait(waiting, timeout=max(0.0, left))
            left -= time.monotonic() - began
            if not done:
                raise self._late("partials", self.timeout, what)
            (part,) = self._get(done, self.timeout, what)
            if part is not None:
                yield part
        self.measured.took("partials", limit - left)

    def evaluate(
        self, handle: ray.ObjectRef, round_: int, final: bool, splits: Sequence[str], attacked: Sequence[int] = ()
    ) -> dict[int, Evaluated]:
        members, there = self._by_actor(self.clients.evaluated()), self._by_actor(attacked)
        calls = [
            actor.evaluate.remote(handle, round_, chosen, final, splits, attacked)
            for actor, chosen, hosted in zip(self.actors, members, there, strict=True)
            if chosen or hosted
        ]
        kind = "" if final else f"evaluate {' '.join(splits)}"
        found = self._get(calls, self.timeout, f"evaluate round {round_}", kind)
        return {client: evaluated for evaluations in found for client, evaluated in evaluations.items()}

    def own_models(self, handle: ray.ObjectRef, round_: int, clients: Sequence[int]) -> dict[int, Evaluated]:
        what = f"evaluate clients' own models after round {round_}"
        return self._of_each(clients, lambda actor, ids: actor.own_models.remote(handle, round_, ids), what)

    def report(self, handle: ray.ObjectRef, client: int) -> dict[str, str]:
        call = self.actors[self.home[client]].report.remote(handle, client)
        return self._get([call], self.timeout, "report what audits have found")[0]

    def parts(self, handle: ray.ObjectRef, round_: int, clients: Sequence[int]) -> dict[int, ClientPart]:
        what = "collect the clients' parts of the model"
        return self._of_each(clients, lambda actor, ids: actor.parts.remote(handle, round_, ids), what)

    def private_states(self, clients: Sequence[int] | None = None) -> dict[int, bytes]:
        what = "collect the clients' state"
        return self._of_each(clients, lambda actor, ids: actor.private_states.remote(ids), what)

    def _of_each(
        self, clients: Sequence[int] | None, call: Callable[[Any, Any], ray.ObjectRef], what: str
    ) -> dict[int, Any]:
        """Return what the actors that host these clients return, by client; None: all actors, about all theirs."""
        members = [None] * len(self.actors) if clients is None else self._by_actor(clients)
        calls = [call(a, ids) for a, ids in zip(self.actors, members, strict=True) if ids is None or ids]
        found = self._get(calls, self.timeout, what)
        return {client: value for values in found for client, value in values.items()}

    def restore(self, states: Mapping[int, bytes]) -> None:
        members = self._by_actor(list(states))
        calls = [
            actor.restore.remote({client: states[client] for client in hosted})
            for actor, hosted in zip(self.actors, members, strict=True)
        ]
        self._get(calls, self.timeout, "restore the clients' state")

    def _objects(self, clients: Sequence[int]) -> list[ray.ObjectRef]:
        """Return the objects with the data of these clients."""
        return list(dict.fromkeys(self.data[client] for client in clients))

    def _by_actor(self, clients: Sequence[int]) -> list[list[int]]:
        return moves.by_actor(clients, self.home, len(self.actors))

    def balance(self) -> None:
        """Move clients, with their private state, so that the actors' times of the last local updates are even.

        Every round begins with it. Nothing moves before every client has trained, unless an actor has none, and unless
        it gains enough. Clients of a corpus on disk are split among all actors, also those that have joined.
        """
        if isinstance(self.home, Dealt):
            if self.home.actors < len(self.actors):
                dealt = Dealt(len(self.actors), self.block)
                moves.deal(self._moved, self.actors, dealt)
                self.home = dealt
            return
        seconds: Mapping[int, float] = self.seconds
        if len(seconds) < len(self.clients):
            known = self.measured.updates | self.seconds
            if not known or len(set(self.home.values())) == len(self.actors):
                return
            seconds = moves.estimated(known, self.clients.tokens)
        if new := moves.better(seconds, self.home, len(self.actors), self.block):
            there = homes(new)
            leaving = [[c for c in members if there[c] != self.home[c]] for members in self._by_actor(list(self.home))]
            moves.move(self._moved, self.actors, leaving, there, self._objects)
            self.home = there

    def _moved(self, calls: list[Any]) -> list[Any]:
        return self._get(calls, self.timeout, "move clients")

    def close(self, keep: bool = False) -> None:
        """End the actors, or, with ``keep``, leave them to the next trial of this process. They must then be idle."""
        self.newcomers.end()
        if keep:
            crew.keep(self.hired, *self.place)
        else:
            crew.end(self.hired)

    def salvage(self) -> None:
        """Leave the actors that are sound to the next attempt of this trial, after one was lost."""
        self.newcomers.end()
        crew.salvage(self.hired, *self.place)
