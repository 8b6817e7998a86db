"""The knowledge of an attacker before it receives anything.

Legend: V vocabulary, R rows of a client's table, S sources of word vectors, D embedding.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.types import ClientData
from fedtext.layout import TABLE, is_table
from fedtext.mechanisms.base import Mechanism
from fedtext.methods.base import Method
from fedtext.models.base import ModelConfig
from fedtext.text.tokens import BOS, EOS, PAD, UNK
from fedtext.text.vocabulary import bears_digit
from fedtext.training.batches import Texts
from fedtext.training.config import Training

State = Mapping[str, NDArray[np.float32]]
SIGNS = (PAD, UNK, BOS, EOS, "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # special tokens; in brackets those of tokenizers


@dataclass(frozen=True)
class Words:
    """The vocabulary: the name of each row, and the row of each name."""

    names: list[str]
    rows: Mapping[str, int]

    @cached_property
    def digits(self) -> NDArray[np.bool_]:
        """digits_V: which words contain a digit."""
        return np.array([bears_digit(name) for name in self.names], np.bool_)

    @cached_property
    def named(self) -> NDArray[np.bool_]:
        """named_V: which entries are words, not special tokens."""
        return np.array([name not in SIGNS for name in self.names], np.bool_)


class Setting(Protocol):
    """The parts of an experiment that an attacker knows. An ``Experiment`` is one."""

    @property
    def seed(self) -> int: ...
    @property
    def corpus(self) -> CorpusConfig: ...
    @property
    def model(self) -> ModelConfig: ...
    @property
    def method(self) -> Method: ...
    @property
    def uplink(self) -> Sequence[Mechanism]: ...
    @property
    def training(self) -> Training: ...
    @property
    def own_vocabularies(self) -> bool: ...
    @property
    def whole_table(self) -> bool: ...


def digest(shared: State) -> str:
    """Return a digest of parameters, by which what was computed from them is found again."""
    hashed = hashlib.blake2b()
    for name in sorted(shared):
        hashed.update(np.ascontiguousarray(shared[name]).data)
    return hashed.hexdigest()


class Population(ABC):
    """The population as an attacker has it: the clients' test texts, and the means to train a model like the run's.

    Attributes:
        clients: Number of the corpus's clients.
        references: What an audit makes of it once for all clients, by the audit.
    """

    clients: int

    def __init__(self, clients: int) -> None:
        self.clients, self.references = clients, dict[object, object]()

    @abstractmethod
    def texts(self, client: int) -> ClientData:
        """Return a client with its test texts alone, in rows of all clients' words."""

    @abstractmethod
    def trained(self, shadow: int, chosen: Sequence[NDArray[np.int64]]) -> State:
        """Train a shadow model from the run's initial parameters, as the run does, with other random draws.

        Args:
            shadow: Number of the shadow model, from which the draws follow.
            chosen: Indices of the test texts that are each client's train texts.

        Returns:
            The shared parameters after the last round, tables with V rows.
        """


@dataclass(frozen=True)
class Known:
    """The attacker's knowledge before it receives anything: the experiment, its network, and initial parameters.

    Attributes:
        experiment: The experiment.
        classes: Number of classes C.
        initial: Initial values of the parameters that stay with clients. Tables have V rows, or there is one such table
            for each source of word vectors.
        build: Builds the network.
        read: Prepares a split ("train" or "test") of a client's texts for the model.
        tests: With vocabularies of the clients' own, returns a client's test texts in rows of all clients' words.
        public_SV: With vocabularies of the clients' own, which words the vectors of each source have.
        population: What the attacker has of the population; None unless an audit ``simulates``.
        multiplier: The noise multiplier of ``training.dp_sgd``; 0 without it.
        repeated: Returns which of a client's test texts are also in a client's train split; None: none are.
    """

    experiment: Setting
    classes: int
    initial: State
    build: Callable[[], nn.Module]
    read: Callable[[ClientData, str], Texts]
    tests: Callable[[int], ClientData] | None = None
    public_SV: NDArray[np.bool_] | None = None
    population: Population | None = None
    multiplier: float = 0.0
    repeated: Callable[[ClientData], NDArray[np.bool_]] | None = None

    @cached_property
    def network(self) -> nn.Module:
        """The network on the CPU, without dropout. Its parameters have to be given with every call."""
        return self.build().eval()

    def unseen(self, data: ClientData) -> NDArray[np.int64]:
        """Return the indices of a client's test texts that are in no client's train split.

        Of a corpus on disk they are compared with the train splits of the client itself and of clients that are drawn.

        Args:
            data: The client, with all its test texts.
        """
        return np.flatnonzero(~self.repeated(data)) if self.repeated else np.arange(len(data.test))

    def parameters(self, shared: State, rows_R: NDArray[np.int32] | None = None) -> dict[str, Tensor]:
        """Return copies of all parameters of the network: the shared ones, and initial values of the others.

        Args:
            shared: Shared parameters, tables with V rows.
            rows_R: Rows of the tables; None leaves tables out.
        """
        method, sources, found = self.experiment.method, {**self._common, **shared}, {}
        for name, _ in self.network.named_parameters():
            source = sources[method.mirrors(name) or name]
            if not is_table(name):
                found[name] = torch.tensor(source)
            elif rows_R is not None:
                found[name] = torch.tensor(source[rows_R])
        return found

    def table(self, received: State) -> NDArray[np.float32]:
        """Return the attacker's word vectors, shape (V, D): the table that was sent, else the initial one."""
        return self.tables(received)[0]

    def tables(self, received: State) -> Sequence[NDArray[np.float32]]:
        """Return all candidates for ``table``: the attacker does not know from which source a client's vectors are."""
        if TABLE in received:
            return [received[TABLE]]
        found = self.initial[TABLE]
        return list(found) if found.ndim == 3 else [found]

    @cached_property
    def _common(self) -> State:
        """The initial private parameters; the first table if there are several sources of word vectors."""
        return {name: one[0] if is_table(name) and one.ndim == 3 else one for name, one in self.initial.items()}
