"""Decoding of payloads, on the server or wherever updates are added up."""

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.layout import TABLE, Layout, not_finite
from fedtext.messages import Update
from fedtext.methods import layouts
from fedtext.models.ranks import ALIKE, Ranks
from fedtext.wire import encoding


class Decoder:
    """Decodes payloads, and reverses the uplink's mechanisms.

    Args:
        experiment: The experiment.
        layout: The shared tensors, tables with all rows.
        integers: Whether payloads have integers of secure aggregation, which nothing is reversed in.
        ranks: What each client has of them.

    Attributes:
        sent: The layout of an update, with the tensors that the method and mechanisms send beside it.
        extras: Shapes of those of the method.
    """

    def __init__(self, experiment: Experiment, layout: Layout, integers: bool = False, ranks: Ranks = ALIKE) -> None:
        self.experiment, self.layout, self.integers, self.ranks = experiment, layout, integers, ranks
        self.sent = layouts.sent(experiment.method, layout, experiment.model.fixes, experiment.uplink)
        self.extras = layouts.extras(experiment.method, layout, experiment.model.fixes)
        self._shapes: dict[tuple[int, int | None], dict[str, tuple[int, ...]]] = {}  # of the last round, by rank

    @property
    def coordinates(self) -> int:
        """Number of coordinates that a client sends, counting parameters that it sends in some rounds only. Of unequal
        ranks it is that of the largest."""
        return layouts.coordinates(self.sent, self.experiment.model.fixes)

    def shapes(self, round_: int, client: int = 0) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tensors of a client's payload in this round."""
        key = round_, self.ranks.rank(client)
        if key not in self._shapes:  # every client of a round asks
            self._shapes = {known: shapes for known, shapes in self._shapes.items() if known[0] == round_}
            self._shapes[key] = self._sent_in(round_, client)
        return self._shapes[key]

    def _sent_in(self, round_: int, client: int) -> dict[str, tuple[int, ...]]:
        shared_in = self.experiment.shared_in
        shapes = {name: shape for name, shape in self.layout.shapes.items() if shared_in(name, round_)}
        shapes = self.ranks.shapes(shapes, client) | self.extras
        if self.integers:
            return shapes
        for mechanism in self.experiment.uplink:
            shapes = dict(mechanism.leaves(shapes))
        return shapes

    def update(self, payload: NDArray[np.uint8], client: int, flat: NDArray[np.float32], round_: int) -> Update:
        """Decode a payload, and reverse the uplink's mechanisms.

        Args:
            payload: The bytes.
            client: The client's id.
            flat: The shared parameters that the client received.
            round_: Number of the round.

        Raises:
            ValueError: It is not a payload of the tensors that are expected.
        """
        # An update that is added up at once needs no copy, which of a large one takes longer than the sum. Those that
        # are kept would hold their payloads in Ray's object store, and mechanisms may write into what they restore.
        copied = bool(self.experiment.uplink) or not self.experiment.sums
        given = self.shapes(round_, client), self._kind, self.experiment.own_rows
        update = encoding.decode(payload, client, *given, copied)
        return self._restored(update, flat) if self.experiment.uplink and not self.integers else update

    def restored(self, update: Update, flat: NDArray[np.float32], round_: int) -> Update:
        """Return an update as the server would decode it from its payload, without a payload.

        Args:
            update: What the client would send.
            flat: The shared parameters that the client received.
            round_: Number of the round.

        Raises:
            ValueError: These are not the tensors that are expected.
        """
        expected = self.shapes(round_, update.client)
        if update.tensors.keys() != expected.keys():
            raise ValueError(f"it sends tensors {sorted(update.tensors)} where {sorted(expected)} are expected")
        for name, tensor in update.tensors.items():
            rows = len(update.rows) if name == TABLE and update.rows is not None else None
            shape = expected[name] if rows is None else (rows, *expected[name][1:])
            if tensor.dtype != self._kind or tensor.shape != shape:
                raise ValueError(f"it sends {name} as {tensor.dtype}{tensor.shape}, not {self._kind}{shape}")
        return self._restored(update, flat)

    @property
    def _kind(self) -> np.dtype:
        """The type of all tensors of a payload."""
        if self.integers:
            return encoding.INTEGERS
        uplink = self.experiment.uplink
        return encoding.BITS if uplink and uplink[-1].bits else encoding.FLOAT32

    def _restored(self, update: Update, flat: NDArray[np.float32]) -> Update:
        """Reverse the uplink's mechanisms."""
        tensors = dict(update.tensors)
        if uplink := self.experiment.uplink:
            received: dict[str, NDArray[np.float32]] = self.ranks.held(self.layout.views(flat), update.client)
            received |= {name: np.zeros(shape, np.float32) for name, shape in self.extras.items()}
            if update.rows is not None:
                received = received | {TABLE: received[TABLE][update.rows]}
            for mechanism in reversed(uplink):
                tensors = mechanism.restore(tensors, received)
            if name := not_finite(tensors):  # products of finite numbers can be too large
                raise ValueError(f"it sent {name} with numbers that are not finite")
        in_order = {name: tensors[name] for name in self.sent.shapes if name in tensors}  # that of masks
        return Update(update.client, update.samples, in_order | tensors, update.rows)
