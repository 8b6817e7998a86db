"""The clients that take part in an experiment, as the simulation knows them before the first round."""

from collections.abc import Sequence
from itertools import groupby

from fedtext.config.experiment import Experiment
from fedtext.corpora.pool import pool
from fedtext.corpora.types import ClientData, Corpus
from fedtext.evaluation.unigram import unigram
from fedtext.server.fleet import ClientInfo
from fedtext.server.start import participant_count


def stacks(cohort: Sequence[int], size: int) -> list[list[int]]:
    """Split a cohort into stacks: its members in each block of ``size`` consecutive client ids."""
    return [list(members) for _, members in groupby(sorted(cohort), key=lambda client: client // size)]


def participants(experiment: Experiment, corpus: Corpus) -> list[ClientData]:
    """Return the corpus's clients, followed by the pooled one if the method trains on all data in one place.

    Raises:
        UserError: The experiment does not fit the corpus, or its aggregation needs more clients.
    """
    participant_count(experiment, corpus)
    return [*corpus.clients, pool(corpus.clients)] if experiment.method.pooled else list(corpus.clients)


def baselines(experiment: Experiment, corpus: Corpus) -> dict[str, float]:
    """Return ``Fleet.baselines``; empty for classifiers. The simulation computes them, and no client sends counts."""
    return unigram(corpus.clients) if experiment.language else {}


def describe(client: ClientData, corpus: Corpus) -> ClientInfo:
    """Return the description of a client for the server."""
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
