"""What a command has decided before its first trial starts."""

from dataclasses import dataclass
from platform._folder import RunFolder  # type: ignore[import-not-found]

from actors import placement
from dashboards.store import Store
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.ledger import ledger
from fedtext.ledger.report import reveals
from fedtext.models.inits import RandomInit
from fedtext.parameters import shared_numbers
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
    nodes: list[dict[str, float]]
    store: Store
    folder: RunFolder


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
