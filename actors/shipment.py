"""A corpus in Ray's object store."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import ray

from fedtext.client.audit_runner import audited_words
from fedtext.client.participants import baselines, describe, participants
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.server.fleet import ClientInfo

OBJECTS = 1_000  # most objects with the clients' data: each takes a millisecond


@dataclass(frozen=True)
class Shipment:
    """A corpus in the object store. The clients' data are many objects, so that an actor fetches only what it hosts.

    Args:
        header: the corpus as the server has it (``Corpus.header``).
        corpus_clients: number of the corpus's clients, without the one of pooled texts.
        lean: the corpus for the actors: without clients, and without what only the server needs.
        infos: each client's description.
        clients: the object with a client's data, by id: a list of ``together`` clients.
        together: clients in an object, 1 unless there are very many.
        baselines: see ``Fleet``.
    """

    header: Corpus
    corpus_clients: int
    lean: ray.ObjectRef
    infos: list[ClientInfo]
    clients: dict[int, ray.ObjectRef]
    together: int
    baselines: Mapping[str, float]


def ship(experiment: Experiment, corpus: Corpus) -> Shipment:
    """Put a corpus into the object store, once for all trials that use it."""
    clients = participants(experiment, corpus)
    size = math.ceil(len(clients) / OBJECTS)
    groups = [clients[start : start + size] for start in range(0, len(clients), size)]
    refs = {client.id: ref for group in groups for ref in [ray.put(group)] for client in group}
    infos = [describe(client, corpus) for client in clients]
    audited_words(experiment, corpus.vocabulary)
    tests = corpus.tests if experiment.evaluation.union or experiment.own_vocabularies else ()
    lean = ray.put(replace(corpus, clients=[], report=[], table_VD=None, tests=tests))
    header = corpus.header(experiment.own_vocabularies)
    return Shipment(header, len(corpus.clients), lean, infos, refs, size, baselines(experiment, corpus))
