"""The server's step: from a round's updates to its parameters."""

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations import IndividualAggregation
from fedtext.canaries.audit import CanaryAudit
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.layout import Layout
from fedtext.messages import Update
from fedtext.metrics import reported
from fedtext.server.aggregation import Summation, weighed
from fedtext.server.aggregation_state import AggregationState
from fedtext.server.fleet import Fleet
from fedtext.server.method_state import MethodState
from fedtext.server.noise import ServerNoise
from fedtext.server.optimizers import Moments, step
from fedtext.server.secure import SecureAggregation


class ServerStep:
    """The aggregation of updates, the server's noise, the method's part of the step, and the server's optimizer.

    Args:
        experiment: The experiment.
        shared: The shared parameters before the first round, tables with all rows.
        sent: The tensors of an update.
        fleet: The clients.
        clients: Number of clients that can train.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.

    Attributes:
        moments: State of the server's optimizer.
        method_state: State of the method at the server.
        aggregation_state: What the aggregation keeps.

    Raises:
        UserError: What the aggregation keeps before the first round is not as it has to be.
    """

    def __init__(
        self,
        experiment: Experiment,
        shared: Mapping[str, NDArray[np.float32]],
        sent: Layout,
        fleet: Fleet,
        clients: int,
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.experiment, self.fleet = experiment, fleet
        self.layout = Layout({name: tensor.shape for name, tensor in shared.items()})
        self.summation = Summation(experiment, sent, fleet.clients.samples)
        self.secure = SecureAggregation(experiment, fleet, fleet.noise)
        self.noise = ServerNoise(experiment, clients, sent, fleet.noise, kept)
        self.canaries = CanaryAudit(experiment, clients, fleet.noise, self.layout, fleet.withheld, kept)
        self.method_state = MethodState(experiment.method, shared, experiment.model.fixes, kept)
        self.aggregation_state = AggregationState(experiment.aggregation, shared, clients, kept)
        self.moments: Moments = {name: tensor for name, tensor in (kept or {}).items() if not name.startswith("#")}

    def run(
        self, flat_N: NDArray[np.float32], updates: Iterator[Update], round_: int, attempt: int
    ) -> tuple[NDArray[np.float32], Mapping[str, float]]:
        """Return the parameters after a round, and the metrics of the aggregation.

        A round without participants leaves the parameters unchanged, but for the server's noise.

        Args:
            flat_N: The parameters before the round.
            updates: The updates of its clients, but for those whose sums the fleet has.
            round_: Number of the round.
            attempt: Number of the attempt at the round, from 1.

        Raises:
            UserError: What the aggregation returned, or its metrics, are not as they have to be.
        """
        if isinstance(self.experiment.aggregation, IndividualAggregation):
            return self._individually(self.experiment.aggregation, flat_N, updates)
        total = self.summation.empty()
        for update in updates:
            total.add(update)
        for part in self.fleet.partials(round_):
            total.merge(part)
        self.canaries.join(total, flat_N, round_, attempt)
        secure = self.secure.open(total, round_, attempt)
        expected = self.noise.expected
        mean = total.mean(expected)
        if mean is None:
            return flat_N, {}
        if expected:
            self.noise.add(mean, round_)
        found = total.metrics()
        if problem := reported.problem_of(found):
            raise UserError(f"aggregation {self.experiment.aggregation.name}: metrics returned {problem}")
        metrics = {**reported.as_floats(found), **self.noise.metrics, **secure}
        return self._moved(flat_N, mean, expected or total.weight), metrics

    def _individually(
        self, aggregation: IndividualAggregation, flat_N: NDArray[np.float32], updates: Iterator[Update]
    ) -> tuple[NDArray[np.float32], Mapping[str, float]]:
        """Return the parameters after an aggregation that needs each update, and its metrics."""
        first = next(updates, None)
        if first is None:
            return flat_N, {}
        weights: list[float] = []
        given = weighed(chain([first], updates), self.summation.weight, weights)
        before, weight = self.layout.views(flat_N), self.summation.weight
        aggregated, metrics, following = self.aggregation_state.aggregate(aggregation, before, given, weight)
        state_N = self.layout.pack(aggregated)
        for _ in given:  # the aggregation may not use all of them, but all have been sent
            pass
        self.aggregation_state.keep(following)  # only now: too few updates, and the round is repeated
        if self.experiment.server.optimizer.plain and not self.method_state.steps:
            return state_N, metrics
        return self._moved(flat_N, np.subtract(state_N, flat_N, dtype=np.float64), sum(weights)), metrics

    def _moved(self, flat_N: NDArray[np.float32], change_N: NDArray[np.float64], weight: float) -> NDArray[np.float32]:
        """Return the parameters after the method's part of the step, and the optimizer's."""
        change_N = self.method_state.step(change_N, weight / self.summation.scale)
        moved_N, self.moments = step(self.experiment.server.optimizer, flat_N, change_N, self.moments)
        return moved_N

    def broadcast(self, flat_N: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the parameters, followed by what clients receive beside them."""
        return self.noise.after(self.method_state.with_state(flat_N))

    def to_keep(self) -> Moments:
        """Return the tensors for a checkpoint."""
        kept = self.moments | self.method_state.to_keep() | self.aggregation_state.to_keep() | self.noise.to_keep()
        return kept | dict(self.canaries.to_keep())
