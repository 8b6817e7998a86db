"""Audits: attacks that measure what a client's local update discloses.

An audit changes nothing that is trained or sent, and it has random generators of its own: a run gives the same results
with and without it.

Legend: V vocabulary, R rows of a client's table, S sources of word vectors, D embedding.
"""

import hashlib
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
from fedtext.evaluation import Evaluated
from fedtext.layout import TABLE, is_table
from fedtext.mechanisms.base import Mechanism
from fedtext.messages import Update
from fedtext.methods.base import Method
from fedtext.metrics import Metric
from fedtext.models.base import ModelConfig
from fedtext.schema import Strict
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

    experiment: "Setting"
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

        Of a corpus on disk they are compared with the client's own train split alone.

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


@dataclass(frozen=True)
class LocalUpdate:
    """One client's local update, with everything that an audit may compare.

    Attributes:
        data: The client's texts.
        received: The shared parameters that were sent to it, the table with all V rows.
        trained: All its parameters before any mechanism, on the CPU. Tables have the rows ``data.rows_R``, those of
            words of train first.
        update: The update as the server decodes it from the payload. Its table has the rows ``update.rows``: with
            ``wire.rows: own`` the first ``data.train_rows`` of ``data.rows_R``, without those that the method
            withholds. If ``update.rows`` is None, it has all V rows.
        round: Number of the round, from 1.
        place: Index among the clients of this round that are attacked: those that are evaluated in the order of their
            ids, and in the last round the others after them.
        known: The attacker's knowledge.
    """

    data: ClientData
    received: State
    trained: Mapping[str, Tensor]
    update: Update
    round: int
    place: int
    known: Known


class Observation(ABC):
    """The data of a local update that an audit keeps, with the client, until the round is evaluated.

    Attributes:
        of_model: Whether its metrics are of the shared parameters alone, and so the same at every client. They are then
            computed at the first client of the round that has completed it.
    """

    of_model: ClassVar[bool] = False

    @abstractmethod
    def metrics(self, shared: State) -> dict[str, float]:
        """Compute the audit's metrics of this client.

        Args:
            shared: The shared parameters after the round, tables with V rows.

        Returns:
            Values by names of ``Audit.metrics``. A metric without a value is left out.
        """

    def evaluate(self, shared: State) -> Evaluated:
        """Return the metrics of this client, with its parts of metrics over all clients, if there are some.

        Args:
            shared: The shared parameters after the round, tables with V rows.
        """
        return Evaluated(self.metrics(shared))

    @abstractmethod
    def report(self, shared: State, words: Words) -> dict[str, str]:
        """Write files about this client.

        Args:
            shared: The shared parameters after the round, tables with V rows.
            words: The vocabulary.

        Returns:
            Texts by file name; empty if there is nothing to show.
        """


class Audit(Strict, ABC):
    """Base of all audits. An audit works with every method and every uplink.

    Attributes:
        name: Name of the audit in an experiment.
        metrics: Names of the metrics that it adds to a client's evaluations; ``<part>`` stands for any characters.
        sizes: Those of ``metrics`` that say how much was attacked, and are there also where nothing was measured.
        needs_table: Whether it needs the embedding table to be shared.
        reads_updates: Whether it attacks the update of a single client, and not the shared parameters.
        needs_unseen: Whether it takes test texts for texts that no client has trained on (``Known.unseen``). How many
            it leaves out is then logged.
    """

    name: str
    metrics: ClassVar[tuple[str, ...]] = ()
    sizes: ClassVar[tuple[str, ...]] = ()
    needs_table: ClassVar[bool] = False
    reads_updates: ClassVar[bool] = True
    needs_unseen: ClassVar[bool] = False

    @property
    def simulates(self) -> bool:
        """Whether it trains models like the run's (``Known.population``)."""
        return False

    @abstractmethod
    def observe(self, local: LocalUpdate, words: Words) -> Observation | None:
        """Keep what the audit needs of a local update; None if there is nothing to measure.

        Args:
            local: The local update.
            words: The vocabulary.
        """

    def declares(self, name: str) -> bool:
        """Whether a metric is one of ``metrics``, which may have parts that vary, in angle brackets."""
        return any(Metric(metric, "").matches(name) for metric in self.metrics)

    def measures(self, name: str) -> bool:
        """Whether a run with this metric has measured something with the audit."""
        return self.declares(name) and name not in self.sizes

    def blind(self, vocabulary: list[str]) -> str:
        """Return why the audit could find nothing at any client with this vocabulary; empty if it could.

        A run with such an audit is refused with this message.
        """
        return ""
