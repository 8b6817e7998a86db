"""The fleet whose clients live in this process."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext.client.audit_runner import check_audits
from fedtext.client.participants import baselines, described, participants, stacks
from fedtext.client.parts import part_of
from fedtext.client.shadows import ShadowPopulation, simulates
from fedtext.client.worker import Worker
from fedtext.config.engine import stack_size
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.evaluation import Evaluated
from fedtext.messages import Reply
from fedtext.parameters import withheld
from fedtext.secure.client import secure_clients
from fedtext.server.aggregation import Sum
from fedtext.state.machine import machine_of
from fedtext.state.noise_key import NoiseKey, noise_key
from fedtext.state.trained import ClientPart


class LocalFleet:
    """All clients in this process, one after the other. Needs neither Ray nor a network."""

    left_out: Collection[int] = ()

    def __init__(
        self,
        experiment: Experiment,
        corpus: Corpus,
        unshared: Mapping[str, NDArray[np.float32]],
        device: str = "cpu",
        noise: NoiseKey | None = None,
    ) -> None:
        clients = participants(experiment, corpus)
        self.clients = described(experiment, corpus, clients)
        self.stack, _ = stack_size(experiment, len(clients))
        check_audits(experiment, corpus)
        self.withheld = withheld(experiment, corpus)
        self.baselines: Mapping[str, float] = baselines(experiment, corpus, self.clients)
        self.machines: Collection[str] = (machine_of(experiment, device),)
        self.noise = noise or noise_key(experiment, corpus.content, len(clients))
        self.worker = Worker(experiment, corpus, clients, unshared, device, len(corpus.clients), self.noise)
        self.worker.population = population(self.worker)
        self.worker.secure = secure_clients(experiment, self.clients.samples, self.worker.decoder.coordinates)

    def broadcast(self, flat: NDArray[np.float32]) -> NDArray[np.float32]:
        return flat

    def exchange(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        assert self.worker.secure is not None, "or the server asks nothing"
        return self.worker.secure.answer(step, messages)

    def train(self, handle: NDArray[np.float32], round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        experiment = self.worker.experiment
        audited = self.clients.audited(cohort, round_ == experiment.training.rounds) if experiment.audits else ()
        for members in stacks(cohort, self.stack, self.left_out):
            yield from self.worker.train(handle, round_, members, audited)

    def train_each(self, groups: Sequence[tuple[NDArray[np.float32], Sequence[int]]], round_: int) -> Iterator[Reply]:
        for handle, members in groups:
            yield from self.train(handle, round_, members)

    def partials(self, round_: int) -> Iterator[Sum]:
        return iter(())

    def evaluate(
        self,
        handle: NDArray[np.float32],
        round_: int,
        final: bool,
        splits: Sequence[str],
        attacked: Sequence[int] = (),
    ) -> dict[int, Evaluated]:
        return self.worker.evaluate(handle, round_, self.clients.evaluated(), final, splits, attacked)

    def own_models(self, handle: NDArray[np.float32], round_: int, clients: Sequence[int]) -> dict[int, Evaluated]:
        return self.worker.own_models(handle, round_, clients)

    def report(self, handle: NDArray[np.float32], client: int) -> dict[str, str]:
        return self.worker.audits.report(client, handle)

    def parts(self, handle: NDArray[np.float32], round_: int, clients: Sequence[int]) -> dict[int, ClientPart]:
        return {client: part_of(self.worker, handle, round_, client) for client in clients}

    def private_states(self, clients: Sequence[int] | None = None) -> dict[int, bytes]:
        return self.worker.private_states(clients)

    def restore(self, states: Mapping[int, bytes]) -> None:
        self.worker.restore(states)

    def close(self) -> None:
        pass


def population(worker: Worker) -> ShadowPopulation | None:
    """Return what an attacker has of the population of a worker's run; None if no audit asks for it."""
    return ShadowPopulation(worker, LocalFleet) if simulates(worker.experiment) else None
