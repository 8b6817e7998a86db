"""The adversaries among the clients of a host: their texts and their updates.

Legend: R rows of a client.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedtext.adversaries.backdoor import Backdoor
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData, Corpus, TokenSet
from fedtext.seeding import generator
from fedtext.server.sampling import adversaries


class Adversaries:
    """The adversaries of an experiment, as a host of clients sees them.

    Args:
        experiment: The experiment.
        corpus: The corpus, perhaps without its clients.
        clients: Number of the corpus's clients.
    """

    def __init__(self, experiment: Experiment, corpus: Corpus, clients: int) -> None:
        self.attack = experiment.adversaries.attack if experiment.adversaries else None
        self.seed, self.corpus = experiment.seed, corpus
        self.ids = adversaries(experiment, clients)
        self.trigger = self.attack.trigger(corpus) if self.attack else ()

    def hosted(self, client: ClientData) -> ClientData:
        """Return a client as it takes part: an adversary with the texts that it trains on.

        The trigger of a backdoor has rows in every client, since all are evaluated with it. Those of an honest client
        are among the rows that its train texts do not use, unless they do.
        """
        if self.trigger:
            client = with_entries(client, self.trigger, client.id in self.ids)
        if self.attack is None or client.id not in self.ids:
            return client
        draws = generator(self.seed, "adversary/texts", client=client.id)
        train = self.attack.texts(client.train, tokens_of(client, self.trigger), self.corpus, draws)
        return replace(client, train=train)

    def sent(self, delta: dict[str, NDArray[np.float32]], client: int, round_: int) -> dict[str, NDArray[np.float32]]:
        """Return what a client sends instead of its update; an honest client sends that.

        Args:
            delta: Its update, with what its method sends beside it.
            client: Its id.
            round_: Number of the round.
        """
        if self.attack is None or client not in self.ids:
            return delta
        return self.attack.send(delta, generator(self.seed, "adversary", round_, client))

    def triggered(self, client: ClientData, first: int) -> TokenSet | None:
        """Return the test texts that measure a backdoor; None if there is none, or no such text.

        Args:
            client: An honest client, with the rows of its model.
            first: The entry of the vocabulary that is row 0 of the table.
        """
        if not isinstance(self.attack, Backdoor) or client.id in self.ids:
            return None
        draws = generator(self.seed, "adversary/test texts", client=client.id)
        entries = [entry - first for entry in self.trigger]
        texts = self.attack.triggered(client.test, tokens_of(client, entries), self.corpus, draws)
        return texts if len(texts) else None


def tokens_of(client: ClientData, entries: Sequence[int]) -> NDArray[np.int32]:
    """Return a client's ids of entries of the vocabulary, all of which it has."""
    place = {int(entry): row for row, entry in enumerate(client.rows_R)}
    return np.array([place[entry] for entry in entries], np.int32)


def with_entries(client: ClientData, entries: tuple[int, ...], train: bool) -> ClientData:
    """Return a client that has rows for some more entries of the vocabulary.

    Args:
        client: The client.
        entries: The entries. Those among its rows of train texts stay there.
        train: Whether the others become rows of its train texts too, and so can change.
    """
    used = client.rows_R[: client.train_rows]
    added = np.array([entry for entry in dict.fromkeys(entries) if entry not in used], client.rows_R.dtype)
    rest = client.rows_R[client.train_rows :]
    rest = rest[~np.isin(rest, added)]
    rows_R = np.concatenate([used, added, rest] if train else [used, rest, added])
    place = {int(entry): row for row, entry in enumerate(rows_R)}
    moved_R = np.array([place[int(entry)] for entry in client.rows_R], np.int32)

    def renumbered(texts: TokenSet) -> TokenSet:
        return replace(texts, tokens_T=moved_R[texts.tokens_T])

    return replace(
        client,
        rows_R=rows_R,
        train_rows=client.train_rows + (len(added) if train else 0),
        train=renumbered(client.train),
        validation=renumbered(client.validation),
        test=renumbered(client.test),
    )
