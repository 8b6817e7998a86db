"""A client's texts, prepared for the model, and the order of its batches."""

from collections.abc import Iterator, Set
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.config.sections import Union
from fedtext.corpora.leaks import encoded_identities, encoded_repeated_tests
from fedtext.corpora.pool import union_of_tests
from fedtext.corpora.stored import StoredClients
from fedtext.corpora.types import ClientData, Corpus
from fedtext.methods.base import Phase
from fedtext.models.packing import Ints
from fedtext.seeding import generator
from fedtext.training.batches import Texts, by_task, part, shuffled
from fedtext.training.token_sets import common, first

OTHERS = 1_000  # clients on disk with whose train texts test texts are compared


def order_of(
    experiment: Experiment, texts: Texts, phase: Phase, round_: int, client: int, last: bool = True
) -> Iterator[Ints]:
    """Return the indices of the texts in each batch of a phase.

    Args:
        experiment: The experiment.
        texts: The client's texts.
        phase: The phase.
        round_: Number of the round.
        client: The client's id.
        last: Whether it is the last phase of a local update, whose order does not depend on other phases.
    """
    seed = experiment.seed
    if experiment.method.separates:
        return by_task(texts.tasks_N, experiment.training.batch(len(texts)), phase.epochs, seed, round_, client)
    chosen_N = part(len(texts), phase.texts, seed, client)
    size, purpose = experiment.training.batch(len(chosen_N)), "batches" if last else f"batches/{phase.name}"
    batches = shuffled(len(chosen_N), size, phase.epochs, seed, round_, client, purpose)
    return (chosen_N[batch] for batch in batches)


def texts_of(experiment: Experiment, data: ClientData, split: str) -> Texts:
    """Return a split of a client's texts, prepared for the model.

    Args:
        experiment: The experiment.
        data: The client's data.
        split: ``train``, ``validation`` or ``test``.
    """
    model, tokens, rows = experiment.model, getattr(data, split), len(data.rows_R)
    if model.choice:
        most, which = model.choice
        tokens = common(tokens, rows, most) if which == "common" else first(tokens, most)
    longest = experiment.corpus.max_length if model.pads else None
    return Texts(tokens, rows, longest, as_sets=model.as_sets, task=data.id, counting=model.counting)


def of_classes(texts: Texts, classes: int) -> Texts:
    """Check that all labels are indices of classes, and return the texts. Functions in C do not check them.

    Args:
        texts: The texts.
        classes: The number of classes.

    Raises:
        ValueError: The label of a text is none of them.
    """
    odd = texts.labels_N[(texts.labels_N < 0) | (texts.labels_N >= classes)]
    if len(odd):
        raise ValueError(f"the label of one of its texts is {odd[0]}, and there are {classes} classes, from 0 on")
    return texts


class RepeatedTests:
    """Which test texts of clients are also in the train split of a client, for audits that need unseen texts.

    Of a corpus on disk, whose train texts would all have to be read, they are compared with those of the client itself
    and of ``OTHERS`` clients that are drawn from the seed, or of all clients if there are no more.

    Args:
        corpus: The corpus.
        seed: The experiment's seed.
    """

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self.corpus, self.seed = corpus, seed

    def __call__(self, client: ClientData) -> NDArray[np.bool_]:
        """Return which of a client's test texts are also in the train split of any client.

        Args:
            client: The client, with all its texts.
        """
        if client.id < len(self.corpus.repeated):
            return self.corpus.repeated[client.id]
        on_disk = isinstance(self.corpus.clients, StoredClients)
        return encoded_repeated_tests(client, self._others) if on_disk else np.zeros(len(client.test), bool)

    @cached_property
    def _others(self) -> Set[bytes]:
        """The train texts of the clients that are drawn."""
        clients = len(self.corpus.clients)
        drawn = generator(self.seed, "repeated tests").choice(clients, min(clients, OTHERS), replace=False)
        return {key for client in drawn for key in encoded_identities(self.corpus.clients[int(client)].train)}


def union_of(asked: Union, corpus: Corpus, seed: int) -> ClientData:
    """Return a client with all clients' test texts, or with a sample of them.

    Args:
        asked: How many texts (``evaluation.union``).
        corpus: The corpus, with ``tests``.
        seed: The experiment's seed.
    """
    data = union_of_tests(corpus.tests)
    if asked.texts != "all" and asked.texts < len(data.test):
        drawn_N = generator(seed, "everybody's texts").permutation(len(data.test))[: asked.texts]
        data = replace(data, test=data.test.take(np.sort(drawn_N)))
    return data


def only_tests(
    experiment: Experiment, corpus: Corpus, client: int, chosen_N: NDArray[np.int64] | None = None
) -> ClientData:
    """Return a client of a corpus with its test texts alone, in rows of the vocabulary that they use.

    Args:
        experiment: The experiment.
        corpus: The corpus, with ``tests``.
        client: Id of the client.
        chosen_N: Indices of the texts; None: all.
    """
    tests = corpus.tests[client] if chosen_N is None else corpus.tests[client].take(chosen_N)
    data = replace(union_of_tests([tests]), id=client, name=f"client {client}")
    if not experiment.language:
        return data
    all_V = np.arange(len(corpus.vocabulary), dtype=np.int32)
    return replace(data, rows_R=all_V, train_rows=len(all_V), test=tests)
