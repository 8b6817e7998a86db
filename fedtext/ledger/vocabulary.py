"""The guarantee of a vocabulary that is released from clients' texts, and of it together with the server's noise."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fedtext.accounting.entry import Entry
from fedtext.corpora.private_vocabulary import RELEASE, Release
from fedtext.ledger.central import CENTRAL

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

TOGETHER = f"{CENTRAL} and {RELEASE}"
NAMES = (RELEASE, TOGETHER)
_NEIGHBOURS = "with a client's texts or none in their place, against anyone who sees vocabulary and shared parameters"


def released(experiment: "Experiment") -> Release | None:
    """Return how the vocabulary is released with a guarantee; None if it is not, or clients keep their own."""
    if experiment.own_vocabularies or not experiment.corpus.counts_words:
        return None
    return experiment.corpus.releases


def entries(experiment: "Experiment", clients: int, others: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of a private vocabulary, and of both together if the server adds noise.

    Args:
        experiment: The experiment.
        clients: Number of clients.
        others: The entries of updates.
    """
    found = released(experiment)
    if found is None:
        return
    alone = found.entry(clients)
    yield alone
    assert alone.epsilon is not None, "a release is given its epsilon"
    for entry in others:
        if entry.mechanism == CENTRAL and entry.unit == "run" and entry.epsilon is not None:
            how = "basic composition of both"
            yield Entry(TOGETHER, "run", entry.epsilon + alone.epsilon, entry.delta + alone.delta, how, _NEIGHBOURS)
