"""Who trains the clients: the interface the round is written against, and the fleet that lives in this process."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregation import WeightedSum
from fedtext.auditing import audited_words
from fedtext.corpora.pool import pool
from fedtext.corpora.types import ClientData, Corpus
from fedtext.evaluation import Reading
from fedtext.evaluation.unigram import unigram
from fedtext.experiment import Experiment
from fedtext.noise import NoiseKey, noise_key
from fedtext.parameters import check_fit, withheld
from fedtext.reply import Reply
from fedtext.training.choice import stack_size
from fedtext.worker import Worker


@dataclass(frozen=True)
class ClientInfo:
    """What the simulation knows of a client before the first round. ``rows`` counts its vocabulary's entries, <pad>,
    ``features`` and ``digits``, words with a digit in them, among them, ``tokens`` those of its training texts."""

    id: int
    name: str
    samples: int
    tokens: int
    rows: int
    features: int
    digits: int
    evaluates: bool


class Fleet(Protocol):
    """Clients somewhere. All results are keyed by client, so it does not matter where, nor in which order they come."""

    withheld: NDArray[np.int64] | None  # rows of the table that no client sends (Method.withholds)
    baselines: Mapping[str, float]  # metrics of models that need no training, by name (a language model's unigrams)
    noise: NoiseKey  # of the run: its clients draw from it, and so does its server

    @property
    def clients(self) -> Sequence[ClientInfo]:
        """Everybody, ascending by id; the ids are 0..n-1."""

    def broadcast(self, flat: NDArray[np.float32]) -> Any:
        """Hands the shared parameters to every place that hosts clients, once; the handle names them."""

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        """Each cohort member's reply, as they finish. Unless the method wants ``Individual`` updates, a place may
        add its clients' up and leave their payloads out: then ``partials`` has them."""

    def partials(self, round_: int) -> Iterator[WeightedSum]:
        """The sums of the updates whose replies came without a payload; to be asked for after the last reply."""

    def evaluate(self, handle: Any, round_: int, final: bool, splits: Sequence[str]) -> dict[int, Reading]:
        """What is read of every client that has texts to evaluate on, of its ``test`` or ``validation`` texts or
        both; ``final``: also what is read but once, of the model that counts."""

    def report(self, handle: Any, client: int) -> dict[str, str]:
        """What the audits show of a client after it has been evaluated: texts by file name."""

    def private_states(self) -> dict[int, bytes]:
        """Every client's private state, for a checkpoint. It is the simulation's own, never the server's."""

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Puts private states back."""


def stacks(cohort: Sequence[int], size: int) -> list[list[int]]:
    """The cohort in its stacks: of each block of ``size`` consecutive client ids, those that are there."""
    return [list(members) for _, members in groupby(sorted(cohort), key=lambda client: client // size)]


def participants(experiment: Experiment, corpus: Corpus) -> list[ClientData]:
    """The corpus's clients, and the pooled one where the method trains on all data in one place. Raises UserError if
    the experiment is not for such a corpus."""
    check_fit(experiment, corpus)
    return [*corpus.clients, pool(corpus.clients)] if experiment.method.pooled else list(corpus.clients)


def count(experiment: Experiment, corpus: Corpus) -> int:
    """How many participants there are, without pooling any texts for it. Raises UserError like ``participants``."""
    check_fit(experiment, corpus)
    return len(corpus.clients) + experiment.method.pooled


def baselines(experiment: Experiment, corpus: Corpus) -> dict[str, float]:
    """What ``Fleet.baselines`` has; empty for classifiers. The counts are the simulation's own, like all evaluation: no
    client sends them."""
    return unigram(corpus.clients) if experiment.language else {}


def describe(client: ClientData, corpus: Corpus) -> ClientInfo:
    return ClientInfo(
        client.id,
        client.name,
        len(client.train),
        len(client.train.tokens_T),
        len(client.rows_R),
        int((client.rows_R >= len(corpus.vocabulary) - corpus.features).sum()),
        0 if corpus.digits_V is None else int(corpus.digits_V[client.rows_R].sum()),
        bool(len(client.test) or len(client.validation)),
    )


class LocalFleet:
    """All clients in this process, one after the other. Needs neither Ray nor a network."""

    def __init__(
        self,
        experiment: Experiment,
        corpus: Corpus,
        private: Mapping[str, NDArray[np.float32]],
        device: str = "cpu",
        noise: NoiseKey | None = None,
    ) -> None:
        clients = participants(experiment, corpus)
        self.clients: Sequence[ClientInfo] = [describe(client, corpus) for client in clients]
        self.stack, _ = stack_size(experiment, len(clients))
        audited_words(experiment, corpus.vocabulary)
        self.withheld = withheld(experiment, corpus)
        self.baselines: Mapping[str, float] = baselines(experiment, corpus)
        self.noise = noise or noise_key(experiment, corpus.content, len(clients))
        self.worker = Worker(experiment, corpus, clients, private, device, len(corpus.clients), self.noise)

    def broadcast(self, flat: NDArray[np.float32]) -> NDArray[np.float32]:
        return flat

    def train(self, handle: NDArray[np.float32], round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        for members in stacks(cohort, self.stack):
            yield from self.worker.train(handle, round_, members)

    def partials(self, round_: int) -> Iterator[WeightedSum]:
        return iter(())

    def evaluate(
        self, handle: NDArray[np.float32], round_: int, final: bool, splits: Sequence[str]
    ) -> dict[int, Reading]:
        chosen = [client.id for client in self.clients if client.evaluates]
        return self.worker.evaluate(handle, round_, chosen, final, splits)

    def report(self, handle: NDArray[np.float32], client: int) -> dict[str, str]:
        return self.worker.audits.report(client, handle)

    def private_states(self) -> dict[int, bytes]:
        return self.worker.private_states([client.id for client in self.clients])

    def restore(self, states: Mapping[int, bytes]) -> None:
        self.worker.restore(states)
