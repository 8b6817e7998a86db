"""The sending half of the wire: what leaves a client. Its counterpart is decoder.py."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData
from fedtext.layout import TABLE, Layout
from fedtext.mechanisms.base import steps
from fedtext.messages import Update
from fedtext.state.noise_key import NoiseKey
from fedtext.wire import encoding


class Uplink:
    """Encodes what clients changed of the shared tensors in ``layout``, after the uplink's mechanisms, which draw from
    the run's ``noise`` key. Rows of the table that are ``withheld`` are not sent, or as unchanged where all rows are.
    """

    def __init__(
        self, experiment: Experiment, layout: Layout, noise: NoiseKey, withheld: NDArray[np.int64] | None = None
    ) -> None:
        self.experiment, self.layout, self.noise, self.withheld = experiment, layout, noise, withheld
        self.steps = steps(experiment.uplink)
        self.metrics = {f"{place}/{made.name}": made.metrics for place, made in enumerate(experiment.uplink)}

    def payload(
        self, flat: NDArray[np.float32], parameters: Mapping[str, Tensor], round_: int, data: ClientData
    ) -> tuple[NDArray[np.uint8], dict[str, float]]:
        """The bytes of a client that received ``flat`` and has ``parameters`` now, on the CPU and with the table in
        its own rows; none if nothing is shared. With them, what the mechanisms have to say of this turn.

        Raises ValueError if what they leave is not finite; that the parameters are is known."""
        if not self.layout.shapes:
            return np.zeros(0, np.uint8), {}
        held: Any
        own, held = self.experiment.own_rows, slice(0, data.train_rows)
        if self.withheld is not None:
            held = np.flatnonzero(~np.isin(data.rows_R[: data.train_rows], self.withheld))
        rows = data.rows_R[held]
        sent_now, delta = self.experiment.method.shared_in, {}
        received = {name: tensor for name, tensor in self.layout.views(flat).items() if sent_now(name, round_)}
        for name, before in received.items():
            after = parameters[name].numpy()
            if name == TABLE:
                change = before.take(rows, axis=0)
                np.subtract(after[held], change, out=change)
                delta[name] = change if own else np.zeros_like(before)
                if not own:
                    delta[name][rows] = change
            else:
                delta[name] = after - before
        if own and TABLE in received and self.steps:
            received = received | {TABLE: received[TABLE][rows]}
        said: dict[str, float] = {}
        for name, step in self.steps.items():
            sent = step(delta, received, self.noise.generator(f"uplink/{name}", round_, data.id))
            said |= self.metrics[name](delta, received, sent)
            delta = sent
        if self.steps and not all(np.isfinite(tensor.sum(dtype=np.float64)) for tensor in delta.values()):
            raise ValueError("what its uplink would send is not finite: lower training.optimizer.lr, or the noise")
        sent_rows = rows if own and TABLE in received else None
        return np.frombuffer(encoding.encode(Update(data.id, len(data.train), delta, sent_rows)), np.uint8), said
