"""A trained model in memory, with all that its folder has."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.text.representation import BPE

State = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class ClientPart:
    """The private part of a client's model.

    Attributes:
        state: Its private parameters by name. Tables have a row for each entry of ``vocabulary``.
        vocabulary: The words of its own vocabulary, beginning with <pad>; None: it has the common one.
    """

    state: State
    vocabulary: list[str] | None = None


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model.

    Attributes:
        experiment: The experiment.
        round: Number of the round of this model.
        classes: Number of classes; for a language model the size of the vocabulary without <pad>.
        features: Number of features of a text beside its words.
        labels: Names of the classes; empty if they have none.
        clients: Number of the corpus's clients.
        names: Their names, in their order, if the model needs them or their parts are saved; else empty.
        vocabulary: V entries; None if each client has its own.
        shared: The shared parameters by name, tables with V rows.
        parts: Private parts of clients, by their names, if they are saved.
        tokenizer: The tokenizer of byte pairs, as JSON; empty if tokens are something else.
    """

    experiment: Experiment
    round: int
    classes: int
    features: int
    labels: tuple[str, ...]
    clients: int
    names: tuple[str, ...]
    vocabulary: list[str] | None
    shared: State
    parts: Mapping[str, ClientPart] = field(default_factory=dict)
    tokenizer: str = ""

    def gives_away(self) -> list[str]:
        """Return what the folder discloses about clients' texts, as phrases."""
        said = ["the shared parameters, for which the run's ledger.json says what is guaranteed"]
        corpus = self.experiment.corpus
        if self.vocabulary is not None and corpus.counts_words and not corpus.releases:
            said.append("the vocabulary: each word is in some client's train texts, and no guarantee covers it")
        if isinstance(corpus.text, BPE) and corpus.text.of_clients:
            said.append("the tokenizer: its pairs are frequent in the clients' train texts, and no guarantee covers it")
        if self.labels and corpus.names_classes:
            said.append("the labels: each is that of some client's texts, and no guarantee covers it")
        if self.names:
            said.append("the names of the clients")
        if self.parts:
            said.append(
                f"the private parts of {len(self.parts)} clients, without any guarantee: they show the words of their "
                "texts, and more"
            )
        return said
