"""The interface of canaries for the server's loop over rounds."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtext.canaries.plan import Plan
from fedtext.layout import Layout
from fedtext.messages import Update
from fedtext.wire.decoder import Decoder
from fedtext.wire.uplink import Uplink

if TYPE_CHECKING:
    from fedtext.state.noise_key import NoiseKey

_PREFIX = "#canaries/"  # of their tensors in a checkpoint


class Total(Protocol):
    """The sum of a round's updates."""

    def insert(self, update: Update, rng: np.random.Generator) -> None:
        """Add an update of no client; ``rng`` rounds it, if the sum is of integers."""


class CanaryClients(ABC):
    """The canaries of a run, seen by someone who has what they are told of one kind of guarantee.

    Args:
        plan: Which canaries there are.
        noise: The run's key.
        layout: The shared tensors.
        withheld: Rows of the table that no client sends; None: there are none.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.

    Attributes:
        name: Name of what is kept, in a checkpoint.
        seen: What has been released until now, as far as scores need it.
    """

    name: ClassVar[str]

    def __init__(
        self,
        plan: Plan,
        noise: "NoiseKey",
        layout: Layout,
        withheld: NDArray[np.int64] | None,
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.plan, self.experiment, self.noise, self.layout = plan, plan.experiment, noise, layout
        self.uplink = Uplink(plan.experiment, layout, noise, withheld)
        self.decoder = Decoder(plan.experiment, layout)
        begun = None if kept is None else kept.get(_PREFIX + self.name)
        self.seen = np.zeros(self.size, np.float32) if begun is None else np.array(begun)

    @property
    @abstractmethod
    def size(self) -> int:
        """Length of what is kept."""

    def updates(self, flat: NDArray[np.float32], round_: int, attempt: int) -> Iterator[Update]:
        """Yield the updates of the canaries that take part in a round, for its sum.

        Args:
            flat: The shared parameters that clients receive.
            round_: Number of the round.
            attempt: Number of the attempt at the round, from 1.
        """
        yield from ()

    @abstractmethod
    def observe(self, before: NDArray[np.float32], after: NDArray[np.float32], round_: int) -> None:
        """Note what a completed round has released.

        Args:
            before: The shared parameters before the round.
            after: Those after it.
            round_: Number of the round.
        """

    @abstractmethod
    def scores(self) -> NDArray[np.float64]:
        """Return a score of each canary, larger the more it looks as if it was in the run; shape (K,)."""

    def to_keep(self) -> Mapping[str, NDArray[np.float32]]:
        """Return the tensors for a checkpoint."""
        return {_PREFIX + self.name: self.seen}

    def _sent(self, canary: int, sign: float, flat: NDArray[np.float32], round_: int) -> Update:
        """Return the update of a canary as the server decodes it."""
        payload = self.plan.payload(self.uplink, canary, sign, flat, round_)
        return self.decoder.update(payload, self.plan.id(canary), flat, round_)
