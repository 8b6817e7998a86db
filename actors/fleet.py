"""The fleet whose clients are Ray actors."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import GetTimeoutError, RayTaskError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.client import ClientActor
from actors.placement import Plan, assign
from fedtext.corpora.types import Corpus
from fedtext.experiment import Experiment
from fedtext.fleet import ClientInfo, describe, participants
from fedtext.worker import Reply

START_TIMEOUT_S = 600.0  # a node may have to be started and its environment installed first


@dataclass(frozen=True)
class Shipment:
    """A corpus in the object store: each client's data by itself, so that an actor fetches only what it hosts."""

    header: Corpus  # without its clients
    infos: list[ClientInfo]
    clients: dict[int, ray.ObjectRef]


def ship(experiment: Experiment, corpus: Corpus) -> Shipment:
    """Puts a corpus into the object store, once for all trials that use it."""
    clients = participants(experiment, corpus)
    refs = {client.id: ray.put(client) for client in clients}
    return Shipment(replace(corpus, clients=[]), [describe(client) for client in clients], refs)


class RayFleet:
    """Clients packed into ``plan.actors`` actors, one in each client bundle of ``group``."""

    def __init__(
        self,
        experiment: Experiment,
        shipment: Shipment,
        private: Mapping[str, NDArray[np.float32]],
        plan: Plan,
        group: PlacementGroup | None,
    ) -> None:
        self.clients: Sequence[ClientInfo] = shipment.infos
        self.timeout = experiment.resources.round_timeout_s
        self.home: dict[int, Any] = {}
        header, initial = shipment.header, ray.put(dict(private))
        self.actors = []
        for place, hosted in enumerate(assign(shipment.infos, plan.actors)):
            strategy: Any = "SPREAD"
            if group is not None:
                strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place + 1)
            actor = ClientActor.options(  # type: ignore[attr-defined]  # ray.remote's own
                num_cpus=plan.cpus, num_gpus=plan.gpus, scheduling_strategy=strategy
            ).remote(
                experiment, header.classes, len(header.vocabulary), initial, *[shipment.clients[i] for i in hosted]
            )
            self.actors.append(actor)
            self.home |= dict.fromkeys(hosted, actor)
        try:
            ready = [actor.where.remote() for actor in self.actors]
            self.nodes = self._get(ready, START_TIMEOUT_S, "start the client actors")
        except BaseException:  # those that did start would hold their share of the cluster
            self.close()
            raise

    def broadcast(self, flat: NDArray[np.float32]) -> ray.ObjectRef:
        return ray.put(flat)

    def train(self, handle: ray.ObjectRef, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        waiting = {self.home[client].train.remote(handle, round_, client): client for client in cohort}
        deadline = time.monotonic() + self.timeout
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                late = ", ".join(self.clients[client].name for client in sorted(waiting.values()))
                raise TimeoutError(
                    f"round {round_} took over resources.round_timeout_s = {self.timeout:g} s, waiting for {late}"
                )
            del waiting[done[0]]
            yield ray.get(done[0])

    def evaluate(self, handle: ray.ObjectRef, round_: int, personalize: bool) -> dict[int, dict[str, float]]:
        chosen = [client.id for client in self.clients if client.evaluates]
        calls = [self.home[client].evaluate.remote(handle, round_, client, personalize) for client in chosen]
        return dict(zip(chosen, self._get(calls, self.timeout, f"evaluate round {round_}"), strict=True))

    def private_states(self) -> dict[int, bytes]:
        calls = [self.home[client.id].private_state.remote(client.id) for client in self.clients]
        states = self._get(calls, self.timeout, "collect the clients' state for a checkpoint")
        return dict(zip([client.id for client in self.clients], states, strict=True))

    def restore(self, states: Mapping[int, bytes]) -> None:
        calls = [self.home[client].restore.remote(client, state) for client, state in states.items()]
        self._get(calls, self.timeout, "restore the clients' state")

    def close(self) -> None:
        """Ends the actors."""
        for actor in self.actors:
            ray.kill(actor)

    def _get(self, calls: list[Any], timeout: float, what: str) -> list[Any]:
        try:
            return ray.get(calls, timeout=timeout)
        except RayTaskError as error:
            raise error.cause from None  # what the client's code raised, in its own words
        except GetTimeoutError as error:
            raise TimeoutError(
                f"it took longer than {timeout:g} s to {what}; `ray status` shows what is free"
            ) from error
