"""The receiving half of the wire: what a client's payload says, wherever it is added up."""

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update
from fedtext.methods import layouts
from fedtext.wire import encoding


class Decoder:
    """Decodes payloads of the shared tensors in ``layout`` and undoes the uplink's mechanisms."""

    def __init__(self, experiment: Experiment, layout: Layout) -> None:
        self.experiment, self.layout = experiment, layout
        self.sent, self.extras = layouts.sent(experiment.method, layout), layouts.extras(experiment.method, layout)

    def shapes(self, round_: int) -> dict[str, tuple[int, ...]]:
        """The tensors that arrive in this round."""
        shared_in = self.experiment.method.shared_in
        shapes = {name: shape for name, shape in self.layout.shapes.items() if shared_in(name, round_)} | self.extras
        for mechanism in self.experiment.uplink:
            shapes = dict(mechanism.leaves(shapes))
        return shapes

    def update(self, payload: NDArray[np.uint8], client: int, flat: NDArray[np.float32], round_: int) -> Update:
        """Decode the payload of a client that received ``flat`` in this round, and undo the uplink's mechanisms."""
        uplink = self.experiment.uplink
        update = encoding.decode(payload, client, self.shapes(round_), bits=bool(uplink) and uplink[-1].bits)
        if not uplink:
            return update
        received: dict[str, NDArray[np.float32]] = self.layout.views(flat)
        received |= {name: np.zeros(shape, np.float32) for name, shape in self.extras.items()}
        tensors = dict(update.tensors)
        if update.rows is not None:
            received = received | {TABLE: received[TABLE][update.rows]}
        for mechanism in reversed(uplink):
            tensors = mechanism.restore(tensors, received)
        return Update(update.client, update.samples, tensors, update.rows)
