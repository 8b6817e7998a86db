"""Entries of the privacy ledger. This module imports no mechanism and no experiment."""

from dataclasses import dataclass
from typing import Literal

from fedtext.accounting.distributed import Shares

DELTA = 1e-5  # default delta of approximate guarantees

Unit = Literal["coordinate and round", "client and round", "run", "text"]


@dataclass(frozen=True)
class Measured:
    """A lower bound on the epsilon of a run, measured by canaries.

    Attributes:
        epsilon: The lower bound, at the delta of the entry.
        confidence: Probability with which it holds at least.
        canaries: Number of canaries.
        guesses: Of how many it was guessed whether they were in the run.
        right: How many guesses were right.
        gaussian: The lower bound if the trade-off curve is that of Gaussian noise; None: there is none.
        estimate: An estimate without confidence; None: there is none.
    """

    epsilon: float
    confidence: float
    canaries: int
    guesses: int
    right: int
    gaussian: float | None = None
    estimate: float | None = None


@dataclass(frozen=True)
class Added:
    """The noise in integers that clients add.

    Attributes:
        shares: The noise of a round.
        rounds: In how many rounds a client is at most.
    """

    shares: Shares
    rounds: int


@dataclass(frozen=True)
class Entry:
    """A guarantee of a mechanism, or the reason why it has none.

    Attributes:
        mechanism: Name of the mechanism.
        unit: What is protected: a coordinate of one update, one update, all updates of a run, or one text of a client
            in all of them.
        epsilon, delta: The guarantee. An epsilon of None: there is none, or it could not be computed.
        how: Name of the bound; without an epsilon the reason.
        assumptions: Conditions under which the guarantee holds.
        measured: What canaries of the run have measured beside it; None: nothing.
        added: The noise that clients add, by which the runs of a sweep are composed; None: they add none.
    """

    mechanism: str
    unit: Unit
    epsilon: float | None
    delta: float
    how: str
    assumptions: str = ""
    measured: Measured | None = None
    added: Added | None = None

    def __post_init__(self) -> None:
        """Check the guarantee, which may be a plug-in's.

        Raises:
            ValueError: There is no such epsilon or delta.
        """
        if self.epsilon is not None and not self.epsilon >= 0:
            raise ValueError(f"a guarantee of {self.mechanism} has epsilon {self.epsilon:g}, which has to be 0 or more")
        if not 0 <= self.delta < 1:
            raise ValueError(f"a guarantee of {self.mechanism} has delta {self.delta:g}, which has to be in [0, 1)")

    @property
    def holds(self) -> bool:
        """Whether there is a guarantee, even if its epsilon was not computed because a library is missing."""
        return self.epsilon is not None or bool(self.assumptions)


@dataclass(frozen=True)
class Bound:
    """The bound of an update at one place of the uplink.

    Attributes:
        norm: Largest L2 norm of a client's update, over all tensors together, without the noise in it. None: there is
            no such bound, or it is not known.
        variance: Variance of the Gaussian noise on each coordinate that was added since the norm was bounded.
        why: If there is no norm, the reason, as the end of "no guarantee: ...".
    """

    norm: float | None = None
    variance: float = 0.0
    why: str = "no clip before it bounds an update"


@dataclass(frozen=True)
class Sent:
    """How much a client sends.

    Attributes:
        coordinates: Number of coordinates of an update.
        rounds: Number of rounds.
        delta: Delta at which approximate guarantees are stated.
    """

    coordinates: int
    rounds: int
    delta: float
