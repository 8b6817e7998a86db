"""Mechanisms: steps that change an update before it leaves a client, and that the server may undo."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting.entry import Bound, Entry, Sent
from fedtext.schema import Strict

Tensors = dict[str, NDArray[Any]]  # float32, or bool behind a mechanism that gives bits
Shapes = Mapping[str, tuple[int, ...]]
Step = Callable[[Tensors, Mapping[str, NDArray[np.float32]], np.random.Generator], Tensors]


class Mechanism(Strict, ABC):
    """Base of all mechanisms: one step of the ``uplink``, independent of the method.

    A mechanism has no state. Both the client and the server know ``received``, the shared parameters that the server
    sent this round, with the same rows as ``delta``.

    Attributes:
        name: Name of the mechanism in an experiment.
        randomises: Whether it adds noise to all coordinates. Sending only own rows would disclose a client's words.
        bits: Whether its output has one bit for each coordinate.
        last: Whether no mechanism can follow it, since its output is not numbers that one may compute with.
        whole: Whether some tensors of its output are parameters and not their change.
        takes_whole: Whether it accepts such an input.
        needs_table: Whether it needs the embedding table to be shared.
        free: What a subclass of a mechanism may replace without defining its ``bound``, ``guarantee`` and ``shuffled``
            again.
    """

    name: str
    randomises: ClassVar[bool] = False
    bits: ClassVar[bool] = False
    last: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    takes_whole: ClassVar[bool] = False
    needs_table: ClassVar[bool] = False
    free: ClassVar[frozenset[str]] = frozenset(
        {"name", "metrics", "reports", "sentences", "deviation", "rescales", "embedding_problem"}
    )

    @abstractmethod
    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        """Transform an update on the client.

        Args:
            delta: The update, float32 tensors by name (bool after a mechanism that sends bits). It is not changed.
            received: The shared parameters that the client received.
            rng: Source of random numbers, different for each client, round and mechanism.

        Returns:
            The tensors that are sent instead, with the names and shapes of ``leaves``.
        """

    def restore(self, sent: Tensors, received: Mapping[str, NDArray[np.float32]]) -> Tensors:
        """Turn the output of ``apply`` into an update again, on the server.

        Args:
            sent: The tensors that ``apply`` returned.
            received: The shared parameters that the client received.
        """
        return sent

    def leaves(self, shapes: Shapes) -> Shapes:
        """Return the shapes of the output of ``apply`` for an update of these shapes. The server checks payloads
        against them.

        With ``wire.rows: own`` the word table (``fedtext.layout.TABLE``) has to keep its name and its rows, which a
        client names beside it; its other axes may change.
        """
        return shapes

    @property
    def asks(self) -> Shapes:
        """Shapes of the tensors that the server broadcasts for it, by name: ``apply`` finds them in ``received``."""
        return {}

    @property
    def beside(self) -> Shapes:
        """Shapes of the tensors that a client sends for it beside an update, by name: ``apply`` adds them."""
        return {}

    def rescales(self, left: Tensors | None) -> bool:
        """Whether its output may be the update times a factor that the server does not know.

        The factor may also approximate the effect, as if the largest coordinates are clipped. An audit then fits it.

        Args:
            left: Its output as the server decodes it; None if a later mechanism has changed it.
        """
        return False

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise that it adds to each coordinate; 0 if it adds none, or another one is not
        known. Audits tell by it what noise explains."""
        return 0.0

    def metrics(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], sent: Tensors) -> dict[str, float]:
        """Compute metrics of a call of ``apply``. A round's record has their means over clients, weighted like losses.

        If a mechanism stands in the uplink a second time, or one that inherits its metrics stands beside it, the names
        of the later one's metrics end in ``_2``.

        Args:
            delta, received: The arguments of ``apply``.
            sent: Its result.
        """
        return {}

    def bound(self, before: Bound) -> Bound:
        """Return the bound of its output, given that of its input. By default the output is unbounded."""
        return Bound(why=f"{self.name} does not state how large an update it leaves")

    def guarantee(self, before: Bound, sent: Sent) -> list[Entry]:
        """State the guarantee for any two inputs within a bound.

        Args:
            before: The bound of its input.
            sent: Number of coordinates and rounds, and delta.

        Returns:
            An entry of unit "run", and others of smaller units if they are of interest. Empty: no guarantee.
        """
        return []

    def shuffled(self, sent: Sent, clients: int) -> Entry | None:
        """State the guarantee if the server learns for each coordinate only how often clients send each value.

        Args:
            sent: Number of coordinates and rounds, and delta.
            clients: Least number of clients whose values come together.

        Returns:
            An entry of unit "run"; None: nothing is known beyond ``guarantee``.
        """
        return None

    def sentences(self, before: Bound, hidden: bool) -> list[str]:
        """Return sentences for the privacy report, beside the guarantee.

        Args:
            before: The bound of its input.
            hidden: Whether mechanisms before it already guarantee something.
        """
        return []

    def joins(self, before: "Mechanism") -> bool:
        """Whether it and the mechanism before it are one step, whose guarantee it states."""
        return False

    @property
    def reports(self) -> bool:
        """Whether clients send its ``metrics``."""
        return type(self).metrics is not Mechanism.metrics

    def order_problem(self, before: Sequence["Mechanism"]) -> str:
        """Return why it cannot follow the mechanisms ``before``, as a message; empty if it can."""
        if before and before[-1].last:
            past = before[-1].name
            return f"{past} stands last, since nothing can compute with what it leaves: put {self.name} before it"
        if before and before[-1].bits:
            return f"{self.name} needs numbers, and {before[-1].name} leaves bits: put it before {before[-1].name}"
        past = next((mechanism.name for mechanism in before if mechanism.whole), "")
        if past and not self.takes_whole:
            advice = "leave out one of them" if self.bits or self.whole else f"put it before {past}"
            return f"{self.name} needs the change of the embedding, and {past} leaves the embedding itself: {advice}"
        return ""

    def embedding_problem(self, dim: int) -> str:
        """Return why it cannot be used with an embedding of dimension ``dim``, as a message; empty if it can."""
        return ""


class Follower(Mechanism):
    """Base of mechanisms that must directly follow the one named ``follows``, whose output they need."""

    follows: ClassVar[str]

    @abstractmethod
    def behind(self, before: Mechanism) -> Step:
        """Return one function that does what ``apply`` of both mechanisms would do."""

    def joins(self, before: Mechanism) -> bool:
        return before.name == self.follows

    def order_problem(self, before: Sequence[Mechanism]) -> str:
        fits = bool(before) and before[-1].name == self.follows
        return "" if fits else f"{self.name} must directly follow {self.follows}"


def steps(uplink: Sequence[Mechanism]) -> dict[str, Step]:
    """Return the client's steps of an uplink, each by the name of its random draws."""
    made: dict[str, Step] = {}
    for place, mechanism in enumerate(uplink):
        if isinstance(mechanism, Follower):
            before = uplink[place - 1]
            del made[f"{place - 1}/{before.name}"]
            made[f"{place}/{mechanism.name}"] = mechanism.behind(before)
        else:
            made[f"{place}/{mechanism.name}"] = mechanism.apply
    return made


def bounds(uplink: Sequence[Mechanism]) -> list[Bound]:
    """Return the bound of an update before each mechanism, and after the last one."""
    found = [Bound()]
    for mechanism in uplink:
        found.append(mechanism.bound(found[-1]))
    return found


def sensitivity(uplink: Sequence[Mechanism]) -> float | None:
    """Return C, the largest L2 norm of an update in the server's sum; None if it is unbounded, as after noise."""
    behind = bounds(uplink)[-1]
    return None if behind.variance else behind.norm
