"""The receiving half of the wire: what a client's payload says, wherever it is added up."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext import wire
from fedtext.aggregation import Update, WeightedSum
from fedtext.experiment import Experiment
from fedtext.layout import Layout
from fedtext.models.config import TABLE


class Intake:
    """Decodes payloads of the shared tensors in ``layout`` and undoes the uplink's mechanisms.

    ``weights`` are the sample counts of all clients that could ever take part.
    """

    def __init__(self, experiment: Experiment, layout: Layout, weights: Sequence[int]) -> None:
        self.experiment, self.layout = experiment, layout
        self.uniform = experiment.server.weights == "uniform"
        self.shapes = layout.shapes  # of what arrives
        for mechanism in experiment.uplink:
            self.shapes = dict(mechanism.leaves(self.shapes))
        self.scale = float(len(weights) if self.uniform else sum(weights))

    def update(self, payload: NDArray[np.uint8], client: int, flat: NDArray[np.float32]) -> Update:
        """What the payload of a client that received ``flat`` says it changed."""
        uplink = self.experiment.uplink
        update = wire.decode(payload, client, self.shapes, bits=bool(uplink) and uplink[-1].bits)
        if not uplink:
            return update
        received, tensors = self.layout.views(flat), dict(update.tensors)
        if update.rows is not None:
            received = received | {TABLE: received[TABLE][update.rows]}
        for mechanism in reversed(uplink):
            tensors = mechanism.restore(tensors, received)
        return Update(update.client, update.samples, tensors, update.rows)

    def empty_sum(self) -> WeightedSum:
        holders_only = self.experiment.server.absent_rows == "holders_only"
        return WeightedSum(self.layout, self.scale, uniform=self.uniform, holders_only=holders_only)
