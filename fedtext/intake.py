"""The receiving half of the wire: what a client's payload says, wherever it is added up."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext import wire
from fedtext.aggregation import LARGEST, Update, WeightedSum
from fedtext.experiment import Experiment
from fedtext.layout import Layout
from fedtext.methods.base import Individual
from fedtext.models.config import TABLE


class Intake:
    """Decodes payloads of the shared tensors in ``layout`` and undoes the uplink's mechanisms.

    ``weights`` are the sample counts of all clients that could ever take part.
    """

    def __init__(self, experiment: Experiment, layout: Layout, weights: Sequence[int]) -> None:
        self.experiment, self.layout = experiment, layout
        self.uniform = experiment.server.weights == "uniform"
        self.scale = float(len(weights) if self.uniform else sum(weights))

    def shapes(self, round_: int) -> dict[str, tuple[int, ...]]:
        """The tensors that arrive in this round."""
        shared_in = self.experiment.method.shared_in
        shapes = {name: shape for name, shape in self.layout.shapes.items() if shared_in(name, round_)}
        for mechanism in self.experiment.uplink:
            shapes = dict(mechanism.leaves(shapes))
        return shapes

    def update(self, payload: NDArray[np.uint8], client: int, flat: NDArray[np.float32], round_: int) -> Update:
        """What the payload of a client that received ``flat`` in this round says it changed."""
        uplink = self.experiment.uplink
        update = wire.decode(payload, client, self.shapes(round_), bits=bool(uplink) and uplink[-1].bits)
        if not uplink:
            return update
        received: dict[str, NDArray[np.float32]] = self.layout.views(flat)
        tensors = dict(update.tensors)
        if update.rows is not None:
            received = received | {TABLE: received[TABLE][update.rows]}
        for mechanism in reversed(uplink):
            tensors = mechanism.restore(tensors, received)
        return Update(update.client, update.samples, tensors, update.rows)

    def check_size(self, update: Update) -> None:
        """Raises ValueError if an update is so large that the server's exact sum could not hold it."""
        if isinstance(self.experiment.method, Individual):
            return
        share = (1.0 if self.uniform else update.samples) / self.scale
        for name, tensor in update.tensors.items():
            largest = float(max(tensor.max(), -tensor.min())) if tensor.size else 0.0
            if not largest * share < LARGEST:
                raise ValueError(
                    f"it changed {name} by {largest:g} in one round, too much for an exact sum: lower "
                    "training.optimizer.lr, or the noise of the uplink"
                )

    def empty_sum(self) -> WeightedSum:
        holders_only = self.experiment.server.absent_rows == "holders_only"
        return WeightedSum(self.layout, self.scale, uniform=self.uniform, holders_only=holders_only)
