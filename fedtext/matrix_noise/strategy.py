"""The interface of strategies: sensitivity, errors, and noise round by round."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Standard normal draws of all parameters, in the round that a stream is in. A tree has several: one for each level
# whose node that round completes.
Draw = Callable[[int], NDArray[np.float64]]


@dataclass(frozen=True)
class Errors:
    """Standard deviation of the noise on each coordinate of the prefix sums, for clipped updates of norm 1 and z = 1.

    Attributes:
        mean: Root mean square over all rounds.
        max: The largest of a round.
    """

    mean: float
    max: float


class Stream(ABC):
    """The noise of one run: (C^-1 Z)_t for t = 1, 2, ..., without the factor s."""

    @abstractmethod
    def step(self, draw: Draw) -> NDArray[np.float64]:
        """Return the noise of the next round.

        Args:
            draw: Returns standard normal draws of the round that no one else keeps: level 0 in every round, others of a
                tree.
        """


class Strategy(ABC):
    """A factorisation A = B C for a number of rounds, and clients that are ``separation`` rounds apart.

    Args:
        rounds: Number of rounds.
        separation: Least number of rounds from one participation of a client to its next.
    """

    exact = True  # whether ``sensitivity`` is attained; otherwise it is an upper bound

    def __init__(self, rounds: int, separation: int) -> None:
        self.rounds, self.separation = rounds, separation

    @abstractmethod
    def sensitivity(self, rounds: int | None = None) -> float:
        """Return the sensitivity of the first rounds for updates of norm 1 or less.

        Args:
            rounds: How many; None: all.
        """

    @abstractmethod
    def alone(self) -> float:
        """Return the sensitivity to a client's update of a single round."""

    @abstractmethod
    def variances(self) -> NDArray[np.float64]:
        """Return the variance of each round's prefix sum, for standard normal Z: the squared norms of the rows of B."""

    @abstractmethod
    def stream(self) -> Stream:
        """Return the noise of a new run."""

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The numbers that were computed for it, on which the noise depends; empty if there are none."""
        return ()

    def errors(self) -> Errors:
        """Return the errors of all prefix sums."""
        variances_N, scale = self.variances(), self.sensitivity()
        return Errors(scale * float(np.sqrt(variances_N.mean())), scale * float(np.sqrt(variances_N.max())))


def participations(rounds: int, separation: int) -> int:
    """Return how often a client takes part at most."""
    return -(-rounds // separation)
