"""Costs of trials that are known before they start: rounds, texts, bytes. Times are not known."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedtext.config.experiment import Experiment
from fedtext.corpora.stored import StoredClients
from fedtext.corpora.totals import totals
from fedtext.corpora.types import ClientData, Corpus
from fedtext.metrics.wording import data_size
from fedtext.parameters import changed_numbers, lacking_numbers, shared_numbers
from fedtext.server.sampling import most
from fedtext.server.start import participant_count

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Cost:
    """The cost of a trial.

    Attributes:
        rounds: Its rounds.
        clients: Clients of a round; of a Poisson sample their expected number.
        invited: Clients that receive the parameters of a round, with those that it does not wait for.
        texts: Train texts that all local updates of the trial read, each as often as it is read; of a part of the
            clients the expected number.
        up, down: Bytes that a client sends and receives in a round, mean over clients: 4 for each coordinate, without
            headers and before the uplink's mechanisms. 0 if clients send nothing.
    """

    rounds: int
    clients: float
    invited: float
    texts: float
    up: float
    down: float

    @property
    def total(self) -> float:
        """Bytes that all clients send and receive in all rounds."""
        return self.rounds * (self.clients * self.up + self.invited * self.down)


def cost(experiment: Experiment, corpus: Corpus, done: int = 0) -> Cost:
    """Return the cost of a trial.

    Args:
        experiment: The experiment of the trial.
        corpus: Its corpus.
        done: Rounds that are completed already.
    """
    rounds = max(experiment.training.rounds - done, 0)
    texts = totals(corpus)["train"] * experiment.training.local_epochs
    if experiment.method.pooled:
        return Cost(rounds, 1, 1, rounds * texts, 0, 0)
    there = participant_count(experiment, corpus)
    config = experiment.participation
    clients = config.fraction * there if config.sampling == "poisson" else most(experiment, there)
    clients = buffer.size if (buffer := experiment.server.buffer) else clients * (1 - config.dropout)
    more = config.invited(there) / most(experiment, there) if config.over_selection > 1 else 1
    up, down = (FLOAT * _coordinates(experiment, corpus, all_rows) for all_rows in (False, True))
    return Cost(rounds, clients, clients * more, rounds * texts * clients / there, up, down)


def _coordinates(experiment: Experiment, corpus: Corpus, all_rows: bool) -> float:
    """Return the number of coordinates that a client sends, mean over clients; with ``all_rows`` of those that it
    receives: the rows of all its texts, and not of its train texts alone, and what the server alone changes."""
    if not experiment.method.shares:
        return 0
    vocabulary, facts = len(corpus.vocabulary), (corpus.classes, len(corpus.clients))
    whole, less = (shared_numbers(experiment, *facts, vocabulary - rows, corpus.features) for rows in (0, 1))
    beside = -lacking_numbers(experiment, *facts, corpus.features)
    beside += changed_numbers(experiment, *facts, corpus.features) if all_rows else 0
    if not experiment.own_rows:
        return whole + beside
    return whole + beside - (whole - less) * (vocabulary - _mean_rows(corpus.clients, all_rows))


def _mean_rows(clients: Sequence[ClientData], all_rows: bool) -> float:
    if isinstance(clients, StoredClients):
        return len(clients.vocabulary)
    return sum(len(client.rows_R) if all_rows else client.train_rows for client in clients) / len(clients)


def in_words(one: Cost) -> list[str]:
    """Return the cells of a trial's cost in a table. Texts are of the whole trial, bytes of a client in a round."""
    return [
        f"{one.rounds} round{'s' * (one.rounds != 1)}",
        f"{one.clients:.4g} client{'s' * (one.clients != 1)}",
        f"{one.texts:,.0f} texts in all",
        f"{data_size(one.up)} up",
        f"{data_size(one.down)} down a client and round",
    ]


def total(costs: Sequence[Cost]) -> str:
    """Return a sentence on the cost of all trials."""
    rounds, texts, size = (sum(values) for values in zip(*((c.rounds, c.texts, c.total) for c in costs), strict=True))
    sent = f"{data_size(size)} sent between clients and server, before the uplink's mechanisms"
    return f"in all {rounds:,} rounds, {texts:,.0f} texts read by local updates, {sent}"
