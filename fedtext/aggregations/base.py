"""Aggregations: how the server combines the updates of a round into one step.

A method defines what clients train and send. An aggregation defines how the server combines it, and works with any
method that sends updates. ``server.optimizer`` is applied to the resulting step.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtext.messages import Update
from fedtext.metrics import reported
from fedtext.schema import Strict

State = Mapping[str, NDArray[np.float32]]  # the shared parameters by name
Weight = Callable[[Update], float]  # w_k, as server.weights says


def samples(update: Update) -> float:
    """Return n_k, the client's number of train texts."""
    return float(update.samples)


class Aggregation(Strict, ABC):
    """Base of all aggregations. Derive from ``SumAggregation`` or ``IndividualAggregation``.

    Hyper-parameters are fields, named as in their paper, each with a description. An aggregation has no state: it
    depends on the updates of one round alone. An embedding row that an update leaves out (``wire.rows: own``) counts as
    unchanged, so that own rows and all rows give the same bits. A tensor that is in no update is unchanged. Metrics of
    a round are described in ``fedtext/metrics/table.py``.

    Attributes:
        name: Name of the aggregation in an experiment.
        sums: Whether it needs only sums of updates. Partial sums are then computed where the clients are.
        weighted: Whether it uses ``server.weights``.
        secure: A sentence on whether it would work with secure aggregation, which shows the server only sums. One that
            reads each update, or scales it, must have it.
    """

    name: str
    sums: ClassVar[bool]
    weighted: ClassVar[bool] = False
    secure: ClassVar[str]

    def changes(self, parameter: str) -> bool:
        """Return whether it changes a parameter that no client sends."""
        return False

    def problem(self, updates: int) -> str:
        """Return why it cannot combine ``updates`` updates, as a message that begins with the key; empty if it can.

        It is called before the first round, with the largest possible number of clients of a round.
        """
        return ""


class SumAggregation(Aggregation):
    """Base of weighted means, in which each update may be scaled by a factor of its own.

    ``fedtext.server.aggregation.WeightedSum`` computes sum_k w_k factor_k delta_k / sum_k w_k exactly, in any order and
    over any parts. ``server.weights`` and ``server.absent_rows`` apply.
    """

    sums = True
    weighted = True

    def factor(self, update: Update) -> float:
        """Return the factor of an update. Its weight in the denominator does not change."""
        return 1.0

    @classmethod
    def scales(cls) -> bool:
        """Whether ``factor`` may be another one than 1: a subclass overrides it."""
        return cls.factor is not SumAggregation.factor

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
    """Base of aggregations that need each client's update. All updates are sent to the server."""

    sums = False

    @abstractmethod
    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        """Combine the updates of a round.

        Args:
            state: The shared parameters before the round. They are not changed.
            updates: At least one update, in the order of clients, each available as soon as it has arrived. It takes no
                memory once it is no longer referenced.
            weight: The weight of an update, used if ``weighted``.

        Returns:
            The shared parameters after the round, in float32 and of the shapes of ``state``, and the round's metrics by
            name.

        Raises:
            UserError: There are too few updates.
        """


def problem_of(returned: object, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return what is wrong with what an aggregation returned, which may be a plug-in's; empty if nothing is.

    Args:
        returned: What ``IndividualAggregation.aggregate`` returned.
        shapes: The shapes of the parameters by name.
    """
    if not isinstance(returned, tuple) or [isinstance(each, Mapping) for each in returned] != [True, True]:
        return f"{type(returned).__name__}, and not two mappings: the parameters, and metrics"
    tensors, metrics = returned
    if tensors.keys() != shapes.keys():
        return f"parameters {', '.join(map(str, tensors))}, and the model has {', '.join(shapes)}"
    for name, shape in shapes.items():
        found = tensors[name]
        if not isinstance(found, np.ndarray) or found.dtype != np.float32 or found.shape != tuple(shape):
            form = f"{found.dtype} of {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
            return f"{name} as {form}, and not as float32 of {tuple(shape)}"
    return reported.problem_of(metrics)
