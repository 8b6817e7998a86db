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
    """One step of an uplink, independent of the method. ``received`` holds the parameters the server sent this round,
    row for row as in ``delta``; both sides know them."""

    name: str
    randomises: ClassVar[bool] = False  # adds noise everywhere, which own rows alone would give away
    bits: ClassVar[bool] = False  # gives one bit for each number
    whole: ClassVar[bool] = False  # leaves parameters themselves among what has changed
    takes_whole: ClassVar[bool] = False  # makes sense of those
    needs_table: ClassVar[bool] = False  # is about the shared embedding

    @abstractmethod
    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        """The client's half: what is sent instead of ``delta``."""

    def restore(self, sent: Tensors, received: Mapping[str, NDArray[np.float32]]) -> Tensors:
        """The server's half: an update again."""
        return sent

    def leaves(self, shapes: Shapes) -> Shapes:
        """The tensors that ``apply`` gives for an update of these: what the server has to expect."""
        return shapes

    def rescales(self, left: Tensors | None) -> bool:
        """Whether its output may be the update times a factor that the server does not know, or an update whose largest
        coordinates are cut off, which a factor describes in part. An audit then fits that factor.

        Args:
            left: its output as the server decodes it; None if a later mechanism has changed it since.
        """
        return False

    def metrics(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], sent: Tensors) -> dict[str, float]:
        """Return metrics of ``apply``, whose argument and result these are. A round's record has the means over its
        clients, weighted like losses."""
        return {}

    def bound(self, before: Bound) -> Bound:
        """Return the bound of an update behind this mechanism, if ``before`` is that of its input. A mechanism that
        does not override it leaves an update that nothing bounds."""
        return Bound(why=f"{self.name} does not state how large an update it leaves")

    def guarantee(self, before: Bound, sent: Sent) -> list[Entry]:
        """Return what this mechanism guarantees for any two inputs within ``before``: an entry of unit "run", and where
        it helps of smaller units. Empty, the default: no guarantee."""
        return []

    def sentences(self, before: Bound, hidden: bool) -> list[str]:
        """Return sentences of the privacy report beside the guarantee, for inputs within ``before``. ``hidden``:
        mechanisms in front of it guarantee something already, which it cannot take away."""
        return []

    def joins(self, before: "Mechanism") -> bool:
        """Whether it and the one before it are one step, for which it states the guarantee."""
        return False

    @property
    def reports(self) -> bool:
        """Whether clients send ``metrics`` of it."""
        return type(self).metrics is not Mechanism.metrics

    def order_problem(self, before: Sequence["Mechanism"]) -> str:
        """Why it cannot stand behind ``before``, the mechanisms in front of it; empty if it can."""
        if before and before[-1].bits:
            return f"{self.name} takes numbers, and {before[-1].name} leaves bits: put it before {before[-1].name}"
        past = next((mechanism.name for mechanism in before if mechanism.whole), "")
        if past and not self.takes_whole:
            advice = "leave out one of them" if self.bits or self.whole else f"put it before {past}"
            return f"{self.name} takes what has changed, and {past} leaves the embedding itself: {advice}"
        return ""

    def embedding_problem(self, dim: int) -> str:
        """Why it cannot work on an embedding of ``dim`` numbers a word; empty if it can."""
        return ""


class Follower(Mechanism):
    """A mechanism that has to stand right behind the one it ``follows``, whose form of an update it takes."""

    follows: ClassVar[str]

    @abstractmethod
    def behind(self, before: Mechanism) -> Step:
        """The client's halves of both, as one step."""

    def joins(self, before: Mechanism) -> bool:
        return before.name == self.follows

    def order_problem(self, before: Sequence[Mechanism]) -> str:
        fits = bool(before) and before[-1].name == self.follows
        return "" if fits else f"{self.name} has to stand right behind {self.follows}"


def steps(uplink: Sequence[Mechanism]) -> dict[str, Step]:
    """The client's half of an uplink, step by step, each by a name for its random draws."""
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
    """Return the bound of an update in front of each mechanism, and behind the last one."""
    found = [Bound()]
    for mechanism in uplink:
        found.append(mechanism.bound(found[-1]))
    return found


def sensitivity(uplink: Sequence[Mechanism]) -> float | None:
    """C, the L2 norm that no client's update exceeds when it is summed; None if nothing bounds it, as behind noise."""
    behind = bounds(uplink)[-1]
    return None if behind.variance else behind.norm
