"""Entries of the privacy ledger. This module imports no mechanism and no experiment."""

from dataclasses import dataclass
from typing import Literal

DELTA = 1e-5  # at which approximate guarantees are stated where nothing else is said

Unit = Literal["coordinate and round", "client and round", "run"]


@dataclass(frozen=True)
class Entry:
    """``epsilon`` of a mechanism at ``delta``, for a unit of what is sent; None: there is none, and ``how`` says why.
    Otherwise ``how`` names the bound, and ``assumptions`` what it rests on."""

    mechanism: str
    unit: Unit
    epsilon: float | None
    delta: float
    how: str
    assumptions: str = ""

    @property
    def holds(self) -> bool:
        """Whether something is guaranteed. An epsilon that lacks only the library that computes it is a guarantee."""
        return self.epsilon is not None or bool(self.assumptions)


@dataclass(frozen=True)
class Bound:
    """The bound of an update at one place of the uplink.

    Attributes:
        norm: L2 norm, over all tensors together, that no client's update exceeds, but for the noise that lies on it.
            None: there is no such bound, or no one has stated one.
        variance: Variance of the Gaussian noise on each coordinate that was added since the norm was bounded.
        why: If there is no norm, the reason, as the end of "no guarantee: ...".
    """

    norm: float | None = None
    variance: float = 0.0
    why: str = "no clip before it bounds an update"


@dataclass(frozen=True)
class Sent:
    """How much a client sends: ``coordinates`` in each of ``rounds``; ``delta`` is where guarantees are stated."""

    coordinates: int
    rounds: int
    delta: float
