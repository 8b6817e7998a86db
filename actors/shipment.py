"""A corpus in Ray's object store."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import ray

from fedtext.client.participants import baselines, described, participants
from fedtext.client.shadows import simulates
from fedtext.config.experiment import Experiment
from fedtext.corpora.stored import StoredClients
from fedtext.corpora.types import Corpus
from fedtext.parameters import needs_table
from fedtext.server.fleet import ClientTable

OBJECTS = 1_000  # most objects with the clients' data: each takes a millisecond


@dataclass(frozen=True)
class Shipment:
    """A corpus in the object store. The clients' data are many objects, so that an actor fetches only what it hosts.

    Args:
        header_object: the object with ``header``. The trials of a sweep know each other's shipments, and each fetches
            its own alone.
        corpus_clients: number of the corpus's clients, without the one of pooled texts.
        lean: the corpus for the actors: without clients in memory, and without what only the server needs. No server
            fetches it.
        table: the description of all clients.
        clients: the object with a client's data, by id: a list of ``together`` clients. Empty for a corpus on disk,
            which every node reads itself.
        together: clients in an object, 1 unless there are very many.
        baselines: see ``Fleet``.
    """

    header_object: ray.ObjectRef
    corpus_clients: int
    lean: ray.ObjectRef
    table: ClientTable
    clients: dict[int, ray.ObjectRef]
    together: int
    baselines: Mapping[str, float]

    @cached_property
    def header(self) -> Corpus:
        """The corpus as the server has it (``Corpus.header``)."""
        return ray.get(self.header_object)


def ship(experiment: Experiment, corpus: Corpus) -> Shipment:
    """Put a corpus into the object store, once for all trials that use it."""
    clients = participants(experiment, corpus)
    on_disk = isinstance(clients, StoredClients)
    size = 1 if on_disk else math.ceil(len(clients) / OBJECTS)
    groups = [] if on_disk else [clients[start : start + size] for start in range(0, len(clients), size)]
    refs = {client.id: ref for group in groups for ref in [ray.put(group)] for client in group}
    table = described(experiment, corpus, clients)
    simulated = simulates(experiment)
    tests = corpus.tests if experiment.evaluation.union or experiment.own_vocabularies or simulated else ()
    # The server sends word vectors that are its own, and of others none (``without_tables``).
    own = experiment.own_vocabularies or simulated or needs_table(experiment, corpus)
    table_VD = corpus.table_VD if own else None
    kept = clients if on_disk else []
    lean = ray.put(replace(corpus, clients=kept, report=[], table_VD=table_VD, tests=tests))
    header = ray.put(corpus.header(experiment.own_vocabularies))
    return Shipment(header, len(corpus.clients), lean, table, refs, size, baselines(experiment, corpus, table))
