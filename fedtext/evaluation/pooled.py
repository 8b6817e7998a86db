"""Contributions of clients to metrics over all clients' texts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self


class Pooled(ABC):
    """One client's part of a metric that is no mean over clients, such as an area under a curve of all texts."""

    @classmethod
    @abstractmethod
    def over_clients(cls, parts: Sequence[Self], name: str) -> dict[str, float]:
        """Compute metrics of all clients together.

        Args:
            parts: The parts of the clients that have one, at least one, all of this class.
            name: Name of the evaluation: ``Ag``, ``Ag_val``, ``Ap``, ..., or a name that the audit gives.

        Returns:
            Metrics by name; empty if there is nothing to compute.
        """
