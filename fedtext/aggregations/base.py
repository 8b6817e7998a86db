"""Aggregations: how the server makes one step of the updates of a round.

A method says what clients train and send. An aggregation says what becomes of it on the server, and goes with any
method that sends updates. ``server.optimizer`` is applied to the step that it gives.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtext.messages import Update
from fedtext.schema import Strict

State = Mapping[str, NDArray[np.float32]]  # the shared parameters by name
Weight = Callable[[Update], float]  # w_k, as server.weights says


def samples(update: Update) -> float:
    """Return n_k, the client's number of train texts."""
    return float(update.samples)


class Aggregation(Strict, ABC):
    """Base of all aggregations. A subclass of ``SumAggregation`` or ``IndividualAggregation`` is one.

    Hyper-parameters are fields, named as in their paper, each with a description. An aggregation has no state: it
    depends on the updates of one round alone. An embedding row that an update leaves out (``wire.rows: own``) counts as
    a row that has not changed, so that own rows and all rows give the same bits. A tensor that no update holds stays as
    it is. Metrics of a round are described in ``fedtext/metrics/table.py``.

    Attributes:
        sums: Whether it needs sums of updates alone. Partial sums are then taken where clients live.
        weighted: Whether it reads ``server.weights``.
        secure: A sentence on what secure aggregation, which shows the server sums alone, would allow.
    """

    name: str
    sums: ClassVar[bool]
    weighted: ClassVar[bool] = False
    secure: ClassVar[str]

    def problem(self, updates: int) -> str:
        """Return why it cannot combine ``updates`` updates, in a sentence that begins with the key; empty if it can.

        It is asked before the first round, with the largest number of clients that a round can have.
        """
        return ""


class SumAggregation(Aggregation):
    """Base of aggregations that are a weighted mean, in which each update may be scaled by itself.

    ``fedtext.server.aggregation.WeightedSum`` computes sum_k w_k factor_k delta_k / sum_k w_k exactly, in any order and
    over any parts. ``server.weights`` and ``server.absent_rows`` apply.
    """

    sums = True
    weighted = True

    def factor(self, update: Update) -> float:
        """Return what an update is multiplied by; its weight in the denominator stays as it is."""
        return 1.0

    @property
    def largest(self) -> float:
        """A bound on the absolute value of each coordinate of a scaled update."""
        return math.inf

    def metrics(self, updates: int, scaled: int) -> Mapping[str, float]:
        """Return the metrics of a round.

        Args:
            updates: Number of updates in the sum, at least one.
            scaled: Number of those whose factor was not 1.
        """
        return {}


class IndividualAggregation(Aggregation):
    """Base of aggregations that read each client's update by itself. All of them are sent to the server."""

    sums = False

    @abstractmethod
    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        """Combine the updates of a round.

        Args:
            state: The shared parameters before the round. They are not changed.
            updates: At least one, in the order of their clients, each as soon as it has arrived. One that is let go of
                takes no memory.
            weight: The weight of an update. Read if ``weighted``.

        Returns:
            The shared parameters after the round, in float32 and of the shapes of ``state``, and the round's metrics by
            name.

        Raises:
            UserError: If there are too few updates.
        """
