"""Who takes part in an experiment: a corpus's clients, as the simulation knows them before the first round."""

from collections.abc import Sequence
from itertools import groupby

from fedtext.config.experiment import Experiment
from fedtext.corpora.pool import pool
from fedtext.corpora.types import ClientData, Corpus
from fedtext.errors import UserError
from fedtext.evaluation.unigram import unigram
from fedtext.parameters import check_fit
from fedtext.server.fleet import ClientInfo
from fedtext.server.sampling import most


def stacks(cohort: Sequence[int], size: int) -> list[list[int]]:
    """The cohort in its stacks: of each block of ``size`` consecutive client ids, those that are there."""
    return [list(members) for _, members in groupby(sorted(cohort), key=lambda client: client // size)]


def participants(experiment: Experiment, corpus: Corpus) -> list[ClientData]:
    """The corpus's clients, and the pooled one where the method trains on all data in one place. Raises UserError if
    the experiment is not for such a corpus, or its aggregation not for so few clients."""
    _check(experiment, corpus)
    return [*corpus.clients, pool(corpus.clients)] if experiment.method.pooled else list(corpus.clients)


def count(experiment: Experiment, corpus: Corpus) -> int:
    """Return the number of participants, without pooling any texts for it. Raises UserError like ``participants``."""
    _check(experiment, corpus)
    return len(corpus.clients) + experiment.method.pooled


def _check(experiment: Experiment, corpus: Corpus) -> None:
    check_fit(experiment, corpus)
    if problem := experiment.aggregation.problem(most(experiment, len(corpus.clients))):
        raise UserError(problem)


def baselines(experiment: Experiment, corpus: Corpus) -> dict[str, float]:
    """Return ``Fleet.baselines``, empty for classifiers. The counts are the simulation's own, like all evaluation: no
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
