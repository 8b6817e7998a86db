"""The keys of the noise that the server adds, or that clients add for it (``server.noise``)."""

from abc import ABC, abstractmethod
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from fedtext.accounting.entry import DELTA
from fedtext.matrix_noise import (
    Banded,
    Buffered,
    InverseBanded,
    Strategy,
    Tree,
    inverse_square_root,
    optimal_bands,
    optimal_buffers,
)
from fedtext.schema import Strict, choice


class Independent(Strict):
    """Noise of each round by itself.

    Its multiplier is that of a round: standard deviation of the noise on the sum of updates / clip.norm.
    """

    name: Literal["independent"] = "independent"


class Correlated(Strict, ABC):
    """Base of noise that later rounds take away again in part: DP-FTRL, matrix mechanisms (fedtext/matrix_noise).

    Its multiplier is that of the whole run: the noise on the sum of updates is multiplier x sensitivity x clip.norm
    times C^-1 Z. It needs to be known how many rounds lie between a client's participations: participation.sampling is
    separated or epochs, or all clients take part in all rounds.
    """

    name: str

    @abstractmethod
    def strategy(self, rounds: int, apart: int) -> Strategy:
        """Return the matrix factorisation.

        Args:
            rounds: Number of rounds of the run.
            apart: Least number of rounds from one participation of a client to its next.
        """


class Optimised(Correlated, ABC):
    """Base of correlated noise whose coefficients minimise an error."""

    coefficients: tuple[float, ...] | None = Field(
        None,
        description="those of an earlier run; null: those with the smallest error, which may be others on another "
        "processor; a run that is continued keeps those it was begun with",
    )

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of coefficients."""

    @model_validator(mode="after")
    def _counted(self) -> "Optimised":
        if self.coefficients is not None and len(self.coefficients) != self.count:
            raise ValueError(f"coefficients: there are {len(self.coefficients)}, and {self.name} has {self.count}")
        return self


class TreeNoise(Correlated):
    """Tree aggregation: noise of the nodes of a binary tree, by the online Honaker estimator (Kairouz et al. 2021)."""

    name: Literal["tree"] = "tree"

    def strategy(self, rounds: int, apart: int) -> Strategy:
        return Tree(rounds, apart)


class BandedNoise(Optimised):
    """Banded Toeplitz matrix with optimal coefficients (Choquette-Choo et al. 2023).

    The server keeps the noise of bands - 1 rounds in memory, 8 bytes for each parameter.
    """

    name: Literal["banded"] = "banded"
    bands: int = Field(ge=1, description="number of bands; at most the rounds between a client's participations")
    error: Literal["mean", "max"] = Field(
        "mean", description="what the coefficients minimise: root mean square error of all prefix sums, or the largest"
    )

    @property
    def count(self) -> int:
        return self.bands

    @model_validator(mode="after")
    def _falling(self) -> "BandedNoise":
        found = self.coefficients or (1.0,)
        if found[0] != 1 or found[-1] < 0 or any(later > before for before, later in pairwise(found)):
            raise ValueError("coefficients: the first is 1, and none is negative or larger than the one before it")
        return self

    def strategy(self, rounds: int, apart: int) -> Strategy:
        return Banded(rounds, apart, self.coefficients or optimal_bands(rounds, apart, self.bands, self.error))


class BltNoise(Optimised):
    """Buffered linear Toeplitz matrix with optimal coefficients (Dvijotham et al. 2024; McMahan et al. 2024).

    The server keeps as many sums of noise in memory as there are buffers, 8 bytes for each parameter.
    """

    name: Literal["blt"] = "blt"
    buffers: int = Field(3, ge=1, le=8, description="number of buffers; more than 4 hardly lower the error")
    error: Literal["mean", "max"] = Field(
        "mean", description="what the coefficients minimise: root mean square error of all prefix sums, or the largest"
    )

    @property
    def count(self) -> int:
        return 2 * self.buffers

    @model_validator(mode="after")
    def _falling(self) -> "BltNoise":
        if self.coefficients is None:
            return self
        decays, scales = self.coefficients[: self.buffers], self.coefficients[self.buffers :]
        if not all(0 < decay < 1 for decay in decays) or min(scales) <= 0 or sum(scales) > 1:
            raise ValueError(
                "coefficients: they are decays between 0 and 1, then as many scales above 0 whose sum is at most 1"
            )
        return self

    def strategy(self, rounds: int, apart: int) -> Strategy:
        if self.coefficients is not None:
            return Buffered(rounds, apart, self.coefficients[: self.buffers], self.coefficients[self.buffers :])
        return Buffered(rounds, apart, *optimal_buffers(rounds, apart, self.buffers, self.error))


class BisrNoise(Correlated):
    """Banded inverse square root: nothing is optimised (Kalinin et al. 2025).

    The server keeps the draws of bands - 1 rounds in memory, 8 bytes for each parameter.
    """

    name: Literal["bisr"] = "bisr"
    bands: int = Field(ge=1, description="number of bands of the inverse; any number is possible")

    def strategy(self, rounds: int, apart: int) -> Strategy:
        return InverseBanded(rounds, apart, inverse_square_root(min(self.bands, rounds)))


class Distributed(Strict, ABC):
    """Base of noise that clients add in integers, each a share of it, before the masks of secure aggregation.

    Its multiplier is that of a round: standard deviation of the noise of those clients whose noise is sure / largest
    norm of an update in integers. It is sure of participation.min_clients, less the share
    server.secure_aggregation.colluding of a round's clients.
    """

    name: str


class DiscreteGaussianNoise(Distributed):
    """Each client adds discrete Gaussian noise to its update in integers (Kairouz, Liu and Steinke 2021)."""

    name: Literal["discrete_gaussian"] = "discrete_gaussian"


class SkellamNoise(Distributed):
    """Each client adds Skellam noise to its update in integers (Agarwal, Kairouz and Liu 2021)."""

    name: Literal["skellam"] = "skellam"


_Mechanisms = Independent | TreeNoise | BandedNoise | BltNoise | BisrNoise
NoiseMechanism: TypeAlias = _Mechanisms | DiscreteGaussianNoise | SkellamNoise
if TYPE_CHECKING:
    NoiseMechanismField: TypeAlias = NoiseMechanism
else:
    NoiseMechanismField = choice(*get_args(NoiseMechanism), tagged=True)


@lru_cache(maxsize=64)
def strategy_of(mechanism: Correlated, rounds: int, apart: int) -> Strategy:
    """Return the matrix factorisation of correlated noise, which is computed once.

    Args:
        mechanism: Its keys.
        rounds: Number of rounds of the run.
        apart: Least number of rounds from one participation of a client to its next.
    """
    return mechanism.strategy(rounds, apart)


class Noise(Strict):
    """The server's noise, by its multiplier or by the epsilon of the whole run."""

    mechanism: NoiseMechanismField = Field(
        Independent(), description="how the noise of one round depends on that of others, or that clients add it"
    )
    multiplier: float | None = Field(
        None,
        gt=0,
        description="noise multiplier; of correlated noise that of the whole run, of other noise that of a round",
    )
    target_epsilon: float | None = Field(
        None, gt=0, description="epsilon of the whole run, from which the multiplier is computed"
    )
    cohort_size: int | None = Field(
        None,
        ge=1,
        description="simulate the noise of rounds with this number of clients: on the mean update it is as small as "
        "theirs; null: that of the clients there are",
    )
    delta: float = Field(DELTA, gt=0, lt=1, description="delta at which epsilon is stated; far below 1 / clients")

    @model_validator(mode="after")
    def _one(self) -> "Noise":
        if (self.multiplier is None) == (self.target_epsilon is None):
            raise ValueError("give either multiplier or target_epsilon")
        return self
