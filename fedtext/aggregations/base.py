"""Aggregations: how the server combines the updates of a round into one step.

A method defines what clients train and send. An aggregation defines how the server combines it, and works with any
method that sends updates. ``server.optimizer`` is applied to the resulting step.
"""

import math
from abc import ABC
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtext.messages import Update
from fedtext.metrics import reported
from fedtext.schema import Strict

State = Mapping[str, NDArray[np.float32]]  # the shared parameters by name
Kept = Mapping[str, NDArray[np.float32]]  # what an aggregation keeps over rounds, by name
Weight = Callable[[Update], float]  # w_k, as server.weights says


def samples(update: Update) -> float:
    """Return n_k, the client's number of train texts."""
    return float(update.samples)


class Aggregation(Strict, ABC):
    """Base of all aggregations. Derive from ``SumAggregation`` or ``IndividualAggregation``.

    Hyper-parameters are fields, named as in their paper, each with a description. An aggregation depends on the updates
    of one round alone, but for what an ``IndividualAggregation`` keeps in ``server_state``. An embedding row that an
    update leaves out (``wire.rows: own``) counts as unchanged, so that own rows and all rows give the same bits. A
    tensor that is in no update is unchanged. Metrics of a round are described in ``fedtext/metrics/table.py``.

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
    """Base of aggregations that need each client's update. All updates are sent to the server.

    A subclass has ``aggregate``; or, if it keeps something over rounds, such as the last aggregate, ``server_state``
    and ``server_step``. What it keeps is in checkpoints and is the server's alone: no client receives it, and it is no
    part of a saved model.
    """

    sums = False

    @classmethod
    def keeps_state(cls) -> bool:
        """Whether it keeps something over rounds."""
        return cls.server_step is not IndividualAggregation.server_step

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        """Combine the updates of a round. By default it is the first round of ``server_step``, where there is one.

        Args:
            state: The shared parameters before the round. They are not changed.
            updates: At least one update, in the order of clients, each available as soon as it has arrived. It takes no
                memory once it is no longer referenced.
            weight: The weight of an update, used if ``weighted``.

        Returns:
            The shared parameters after the round, in float32 and of the shapes of ``state``, and the round's metrics by
            name.

        Raises:
            NotImplementedError: The class has neither this nor ``server_step``.
            UserError: There are too few updates.
        """
        if not self.keeps_state():
            raise NotImplementedError(f"{type(self).__name__} lacks aggregate")
        given = list(updates)
        begun = self.server_state(state, 1 + max(update.client for update in given))
        return self.server_step(begun, state, given, weight)[:2]

    def server_state(self, shared: State, clients: int) -> Kept:
        """Return what is kept before the first round: float32 arrays of any names and shapes.

        Args:
            shared: The shared parameters, tables with all rows. They are not changed.
            clients: Number of clients that can train. ``Update.client`` is less.
        """
        return {}

    def server_step(
        self, server: Kept, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float], Kept]:
        """Combine the updates of a round, given what is kept. It takes the place of ``aggregate``.

        It is not called in a round without updates. If a round is repeated, because too few clients complete it, it is
        called again with the same ``server``.

        Args:
            server: What was kept after the round before, in the order of its names. It is not changed.
            state, updates, weight: As in ``aggregate``.

        Returns:
            What ``aggregate`` returns, and what is kept now, of the names and shapes of ``server``.

        Raises:
            UserError: There are too few updates.
        """
        return (*self.aggregate(state, updates, weight), server)


def undeclared(cls: type[Aggregation]) -> str:
    """Return what a class lacks that Python does not require; empty if nothing."""
    scales = issubclass(cls, SumAggregation) and cls.scales()
    if (scales or issubclass(cls, IndividualAggregation)) and not hasattr(cls, "secure"):
        return "secure"
    if not issubclass(cls, IndividualAggregation):
        return ""
    begins = cls.server_state is not IndividualAggregation.server_state
    if begins != cls.keeps_state():
        return "server_step" if begins else "server_state"  # what is kept would never be read, or never begun
    return "aggregate" if not begins and cls.aggregate is IndividualAggregation.aggregate else ""


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
    return _misshapen(tensors, shapes) or reported.problem_of(metrics)


def problem_of_kept(returned: object, shapes: Mapping[str, tuple[int, ...]] | None) -> str:
    """Return what is wrong with what an aggregation keeps, which may be a plug-in's; empty if nothing is.

    Args:
        returned: What ``server_state`` returned, or ``server_step`` beside the parameters and metrics.
        shapes: The shapes of what was kept before, by name; None: ``server_state`` returned it.
    """
    if not isinstance(returned, Mapping) or not all(isinstance(name, str) for name in returned):
        return f"a state of type {type(returned).__name__}, and not a mapping of arrays by name"
    if shapes is not None and returned.keys() != shapes.keys():
        return f"a state of {', '.join(returned) or 'nothing'}, and server_state has {', '.join(shapes) or 'nothing'}"
    return _misshapen(returned, dict.fromkeys(returned) if shapes is None else shapes)


def _misshapen(arrays: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...] | None]) -> str:
    """Return which array is not of float32 and its shape; empty if all are. None is any shape."""
    for name, shape in shapes.items():
        found = arrays[name]
        if not isinstance(found, np.ndarray):
            return f"{name} as {type(found).__name__}, and not as float32{'' if shape is None else f' of {shape}'}"
        if found.dtype != np.float32 or found.shape != (found.shape if shape is None else tuple(shape)):
            return f"{name} as {found.dtype} of {found.shape}, and not as float32 of {shape or found.shape}"
    return ""
