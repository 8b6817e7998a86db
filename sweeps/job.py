"""A job: everything that is decided before the first trial starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from actors import placement
from dashboards.store import Store
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.ledger import ledger
from fedtext.ledger.report import reveals
from fedtext.models.inits import RandomInit
from fedtext.parameters import shared_numbers
from sweeps.folder import RunFolder
from tune_spaces.cases import Case


@dataclass(frozen=True)
class Job:
    """``corpora`` are by what they depend on (key), ``plans`` and what is ``disclosed`` by case, ``nodes`` are the
    cluster's resources."""

    sweep: bool
    experiment: Experiment
    cases: list[Case]
    corpora: dict[str, Corpus]
    plans: dict[str, placement.Plan]
    disclosed: dict[str, list[str]]
    nodes: Sequence[placement.Node]
    store: Store
    folder: RunFolder
    aside: bool = False  # whether a space, baselines or seeds of the experiment are left aside


def key(experiment: Experiment) -> str:
    """What an encoded corpus depends on: cases that agree in it share one. Of the embedding it does only where word
    vectors are read or trained."""
    embedding = experiment.model.embedding
    vectors = "" if isinstance(embedding.init, RandomInit) else repr(embedding)
    return f"{experiment.corpus!r} {vectors} {experiment.seed} {experiment.own_vocabularies}"


def disclosed(experiment: Experiment, corpus: Corpus) -> list[str]:
    """What a run of this gives away and guarantees, in sentences."""
    clients = len(corpus.clients)
    return reveals(experiment, ledger(experiment, numbers(experiment, corpus), clients, experiment.training.rounds))


def numbers(experiment: Experiment, corpus: Corpus) -> int:
    """The number of shared parameters."""
    return shared_numbers(experiment, corpus.classes, len(corpus.clients), len(corpus.vocabulary), corpus.features)
