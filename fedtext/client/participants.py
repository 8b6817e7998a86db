"""The clients that take part in an experiment, as the simulation knows them before the first round."""

from collections.abc import Collection, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.corpora.pool import pool
from fedtext.corpora.stored import StoredClients
from fedtext.corpora.types import ClientData, Corpus
from fedtext.evaluation.unigram import counted, unigram
from fedtext.seeding import generator
from fedtext.server.fleet import ClientTable
from fedtext.server.start import participant_count


def stacks(cohort: Sequence[int], size: int, left_out: Collection[int] = ()) -> list[list[int]]:
    """Split a cohort into stacks: its members in each block of ``size`` consecutive client ids.

    Args:
        cohort: Ids of the clients.
        size: Number of ids in a block.
        left_out: Ids of those that are in no stack. The others of their blocks are trained one by one, as they were
            when these failed (``Worker.train``).
    """
    blocks = [list(members) for _, members in groupby(sorted(cohort), key=lambda client: client // size)]
    if not left_out:
        return blocks
    made: list[list[int]] = []
    for members in blocks:
        others = [client for client in members if client not in left_out]
        made += [members] if len(others) == len(members) else [[client] for client in others]
    return made


def participants(experiment: Experiment, corpus: Corpus) -> Sequence[ClientData]:
    """Return the corpus's clients, followed by the pooled one if the method trains on all data in one place.

    Raises:
        UserError: The experiment does not fit the corpus, or its aggregation needs more clients.
    """
    participant_count(experiment, corpus)
    return [*corpus.clients, pool(corpus.clients)] if experiment.method.pooled else corpus.clients


def baselines(experiment: Experiment, corpus: Corpus, table: ClientTable) -> dict[str, float]:
    """Return ``Fleet.baselines``; empty for classifiers. The simulation computes them, and no client sends counts.

    Args:
        experiment: The experiment.
        corpus: The corpus.
        table: Its clients; the baselines are evaluated on the texts of those that are evaluated.
    """
    if not experiment.language:
        return {}
    clients = corpus.clients
    counts_V = clients.counts_V if isinstance(clients, StoredClients) else counted(clients)
    return unigram([clients[client] for client in table.evaluated() if client < len(clients)], counts_V=counts_V)


def described(experiment: Experiment, corpus: Corpus, clients: Sequence[ClientData]) -> ClientTable:
    """Return the description of the participants for the server.

    Args:
        experiment: The experiment.
        corpus: The corpus.
        clients: What ``participants`` has returned.
    """
    vocabulary, digits_V = len(corpus.vocabulary), corpus.digits_V
    if isinstance(clients, StoredClients):
        entries = vocabulary, 0, 0 if digits_V is None else int(digits_V.sum())
        columns = clients.names, clients.texts_K3[:, 0], clients.train_tokens_K, np.array([entries])
        return ClientTable(*columns, _evaluated(experiment, clients.texts_K3[:, 1:].sum(1) > 0))
    features = [int((client.rows_R >= vocabulary - corpus.features).sum()) for client in clients]
    digits = [0 if digits_V is None else int(digits_V[client.rows_R].sum()) for client in clients]
    rows = [len(client.rows_R) for client in clients]
    return ClientTable(
        [client.name for client in clients],
        np.array([len(client.train) for client in clients]),
        np.array([len(client.train.tokens_T) for client in clients]),
        np.array([rows, features, digits]).T,
        _evaluated(experiment, np.array([bool(len(c.test) or len(c.validation)) for c in clients])),
    )


def _evaluated(experiment: Experiment, able_K: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which clients are evaluated: all that have texts for it, or as many as the experiment asks for."""
    asked, ids = experiment.evaluation.clients, np.flatnonzero(able_K)
    if asked == "all" or asked >= len(ids):
        return able_K
    chosen_K = np.zeros(len(able_K), bool)
    chosen_K[ids[generator(experiment.seed, "evaluated clients").choice(len(ids), asked, replace=False)]] = True
    return chosen_K
