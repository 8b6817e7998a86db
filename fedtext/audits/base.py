"""Audits: attacks that measure what a client's local update discloses.

An audit changes nothing that is trained or sent, and it has random generators of its own: a run gives the same results
with and without it.

Legend: V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtext.audits.known import Known, Population, Setting, State, Words
from fedtext.corpora.types import ClientData
from fedtext.evaluation import Evaluated
from fedtext.messages import Update
from fedtext.metrics import Metric
from fedtext.schema import Strict

# The names that an audit of one's own needs.
__all__ = ["Audit", "Known", "LocalUpdate", "Observation", "Population", "Setting", "State", "Words"]


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
            it leaves out of a corpus in memory is then logged.
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
