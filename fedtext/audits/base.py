"""What an audit is: it looks at what a client's turn gives away, and changes nothing.

It draws no random numbers and touches nothing that is trained or sent: a run with it computes what it does without.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import ClientData
from fedtext.schema import Strict

if TYPE_CHECKING:
    from torch import Tensor

    from fedtext.aggregation import Update

State = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Words:
    """The vocabulary, both ways."""

    names: list[str]  # by row
    rows: Mapping[str, int]


@dataclass(frozen=True)
class Turn:
    """One client's turn, as it can be seen where the client lives."""

    data: ClientData
    received: State  # the shared parameters that were sent to it, the table with all rows
    trained: Mapping[str, "Tensor"]  # all its parameters before any mechanism, tables in its own rows
    update: "Update"  # what the server reads in the payload, its mechanisms undone


class Observation(ABC):
    """What an audit keeps of a turn, with the client, until the round is evaluated."""

    @abstractmethod
    def figures(self, shared: State) -> dict[str, float]:
        """The audit's metrics of this client, ``shared`` being what has become of all clients' updates."""

    @abstractmethod
    def report(self, shared: State, words: Words) -> dict[str, str]:
        """What a person may want to see of this client: texts by file name."""


class Audit(Strict, ABC):
    """Base of all audits, which are the same for every method and every uplink."""

    name: str
    metrics: ClassVar[tuple[str, ...]] = ()  # what it adds to a client's readings
    needs_table: ClassVar[bool] = False  # is about the shared embedding

    @abstractmethod
    def observe(self, turn: Turn, words: Words) -> Observation | None:
        """What is to be kept of a turn; None if it has nothing to tell."""

    def misfit(self, vocabulary: list[str]) -> str:
        """Why it could find nothing at any client; empty if it could."""
        return ""
