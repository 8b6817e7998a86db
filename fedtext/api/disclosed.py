"""Sentences on what a run discloses and guarantees, printed before it starts."""

from fedtext.canaries.plan import check as check_canaries
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.ledger import ledger
from fedtext.ledger.report import guarantees, reveals
from fedtext.parameters import shared_numbers
from fedtext.secure.graph import check_late, withstands
from fedtext.server.noise import noise_errors


def disclosed(experiment: Experiment, corpus: Corpus) -> list[str]:
    """Return sentences on what a run of an experiment reveals and guarantees, its ledger among them.

    Args:
        experiment: The experiment.
        corpus: Its corpus.

    Returns:
        The sentences, each once.

    Raises:
        UserError: Canaries that are summed are too many for as few coordinates, or of the clients that a round with
            secure aggregation samples it does not wait for as many as open it.
    """
    clients, coordinates = len(corpus.clients), numbers(experiment, corpus)
    check_canaries(experiment, coordinates)
    check_late(experiment, clients)
    entries = ledger(experiment, coordinates, clients, experiment.training.rounds)
    beside = noise_errors(experiment, clients, coordinates), withstands(experiment, clients)
    # Of methods that share nothing, or everything, `reveals` says no more than that.
    said = [*reveals(experiment, entries), *filter(None, beside), *guarantees(entries)]
    return list(dict.fromkeys(said))


def numbers(experiment: Experiment, corpus: Corpus) -> int:
    """Return the number of shared parameters.

    Args:
        experiment: The experiment.
        corpus: Its corpus.
    """
    return shared_numbers(experiment, corpus.classes, len(corpus.clients), len(corpus.vocabulary), corpus.features)
