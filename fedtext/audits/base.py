"""Audits: attacks that measure what a client's local update gives away, and change nothing.

It touches nothing that is trained or sent, and what it draws comes from generators of its own: a run with it computes
what it does without.

Legend: R rows of a client's table, D embedding.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.types import ClientData
from fedtext.layout import TABLE, is_table
from fedtext.mechanisms.base import Mechanism
from fedtext.messages import Update
from fedtext.methods.base import Method
from fedtext.models.base import ModelConfig
from fedtext.schema import Strict
from fedtext.text.tokens import BOS, EOS, PAD, UNK
from fedtext.text.vocabulary import bears_digit
from fedtext.training.batches import Texts
from fedtext.training.config import Training

State = Mapping[str, NDArray[np.float32]]
SIGNS = (PAD, UNK, BOS, EOS, "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # those in brackets are word pieces's


@dataclass(frozen=True)
class Words:
    """The vocabulary, both ways."""

    names: list[str]  # by row
    rows: Mapping[str, int]

    @cached_property
    def digits(self) -> NDArray[np.bool_]:
        """digits_V: which words bear a digit."""
        return np.array([bears_digit(name) for name in self.names], np.bool_)

    @cached_property
    def named(self) -> NDArray[np.bool_]:
        """named_V: which entries are words of texts, and no special tokens."""
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


@dataclass(frozen=True)
class Known:
    """The attacker's knowledge before it receives anything: the experiment with its network, and the initial values of
    the parameters that stay with clients. ``read`` prepares a split of a client's texts for the model."""

    experiment: "Setting"
    classes: int
    initial: State  # the private parameters, tables with V rows, or one such table for each source
    build: Callable[[], nn.Module]
    read: Callable[[ClientData, str], Texts]
    # under own vocabularies: a client's test texts in the words of all, and which words each source's vectors have
    tests: Callable[[int], ClientData] | None = None
    public_SV: NDArray[np.bool_] | None = None

    @cached_property
    def network(self) -> nn.Module:
        """On the CPU, without dropout; its parameters have to be given with every call."""
        return self.build().eval()

    def parameters(self, shared: State, rows_R: NDArray[np.int32] | None = None) -> dict[str, Tensor]:
        """Copies of all that the network needs: ``shared``, and of the rest what clients started with. Tables have
        these rows, or are left out."""
        method, sources, found = self.experiment.method, {**self._common, **shared}, {}
        for name, _ in self.network.named_parameters():
            source = sources[method.mirrors(name) or name]
            if not is_table(name):
                found[name] = torch.tensor(source)
            elif rows_R is not None:
                found[name] = torch.tensor(source[rows_R])
        return found

    def table(self, received: State) -> NDArray[np.float32]:
        """The word vectors that an attacker has, V rows: those that were sent, or if none are, those that every client
        began with."""
        return self.tables(received)[0]

    def tables(self, received: State) -> Sequence[NDArray[np.float32]]:
        """All of them: of several embedding sources the attacker does not know which is a client's."""
        if TABLE in received:
            return [received[TABLE]]
        found = self.initial[TABLE]
        return list(found) if found.ndim == 3 else [found]

    @cached_property
    def _common(self) -> State:
        """The initial private parameters; of several embedding sources the first."""
        return {name: one[0] if is_table(name) and one.ndim == 3 else one for name, one in self.initial.items()}


@dataclass(frozen=True)
class LocalUpdate:
    """One client's local update, as it can be seen where the client lives."""

    data: ClientData
    received: State  # the shared parameters that were sent to it, the table with all rows
    trained: Mapping[str, Tensor]  # all its parameters before any mechanism, on the CPU, tables in its own rows
    update: Update  # what the server reads in the payload, its mechanisms undone
    round: int
    place: int  # among those who were to train this round, ascending by id
    known: Known


class Observation(ABC):
    """The observation of a local update that an audit keeps, with the client, until the round is evaluated."""

    @abstractmethod
    def metrics(self, shared: State) -> dict[str, float]:
        """The audit's metrics of this client, ``shared`` being what has become of all clients' updates."""

    @abstractmethod
    def report(self, shared: State, words: Words) -> dict[str, str]:
        """Return files about this client for a person to read: texts by file name."""


class Audit(Strict, ABC):
    """Base of all audits, which are the same for every method and every uplink."""

    name: str
    metrics: ClassVar[tuple[str, ...]] = ()  # what it adds to a client's evaluations
    needs_table: ClassVar[bool] = False  # is about the shared embedding

    @abstractmethod
    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        """Return the observation of a local update; None if there is nothing to observe."""

    def blind(self, vocabulary: list[str]) -> str:
        """Why it could find nothing at any client, of such a vocabulary; empty if it could."""
        return ""
