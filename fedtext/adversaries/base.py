"""Attacks of clients that are adversaries: what they train on, and what they send.

An adversary runs a client's program with other texts or another update. The mechanisms of ``uplink`` follow: what they
guarantee of each update (such as its norm) therefore holds for that of an adversary too. Leave them out to see what an
adversary does who is not bound by them. Clients that are no adversaries are called honest.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations.base import State
from fedtext.corpora.types import Corpus, TokenSet
from fedtext.messages import Update
from fedtext.schema import Strict

Tensors = dict[str, NDArray[np.float32]]


class Attack(Strict, ABC):
    """Base of all attacks: override ``texts``, ``send``, or both. An attack in which adversaries act together derives
    from ``Collusion``.

    Hyper-parameters are fields, named as in their paper, each with a description. An attack has no state.

    Attributes:
        name: Name of the attack in an experiment.
        reads_labels: Whether it changes labels or aims at one, so that it needs a classifier.
    """

    name: str
    reads_labels: ClassVar[bool] = False

    def problem(self, corpus: Corpus) -> str:
        """Return why it does not fit the corpus, as a message that begins with the key; empty if it does."""
        return ""

    def trigger(self, corpus: Corpus) -> tuple[int, ...]:
        """Return the entries of the vocabulary that it inserts into texts; none by default."""
        return ()

    def texts(
        self, train: TokenSet, trigger: NDArray[np.int32], corpus: Corpus, draws: np.random.Generator
    ) -> TokenSet:
        """Return the texts that an adversary trains on, by default its own. They stay as many.

        Args:
            train: Its train texts.
            trigger: The tokens of ``trigger``, as ids of this client.
            corpus: The corpus, perhaps without its clients.
            draws: The adversary's generator, the same each time.
        """
        return train

    def send(self, delta: Tensors, draws: np.random.Generator) -> Tensors:
        """Return what an adversary sends instead of its update, by default that one.

        Args:
            delta: The update, by name, with what a method sends beside it. It is not changed.
            draws: The generator of this adversary in this round.

        Returns:
            Tensors of the same names and shapes in float32.
        """
        return delta


class Collusion(Attack):
    """Base of attacks in which the adversaries of a round know each other's updates, and choose theirs together.

    The server computes them for the adversaries, after it has decoded what they sent. It therefore receives each update
    by itself, and keeps all of a round in memory.
    """

    @abstractmethod
    def choose(self, own: Sequence[Update], honest: int, state: State) -> list[Update]:
        """Return the update of each adversary of a round.

        Args:
            own: What they would have sent, in the order of clients, at least one.
            honest: Number of the round's other updates.
            state: The shared parameters before the round, and zeros for what a method sends beside an update.
        """


def times(delta: Tensors, factor: float) -> Tensors:
    """Return an update times a factor. What is too large for float32 is refused when it is sent."""
    with np.errstate(over="ignore", invalid="ignore"):
        return {name: values * np.float32(factor) for name, values in delta.items()}
