"""The keys of the server: its aggregation, its optimizer, and the noise it adds."""

from typing import Literal

from pydantic import Field, model_validator

from fedtext.accounting.entry import DELTA
from fedtext.schema import Strict


class MethodsOwn(Strict):
    """The aggregation of the method: attention for fedatt, the weighted mean for all others."""

    name: Literal["auto"] = "auto"


class ServerSGD(Strict):
    """Adds the mean update, with a learning rate and momentum; by default plain federated averaging.

    theta <- theta + lr m with m <- momentum m + Delta.
    """

    name: Literal["sgd"] = "sgd"
    lr: float = Field(1.0, gt=0, description="server learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="factor of the previous rounds' direction")

    @property
    def plain(self) -> bool:
        """Whether a step is the aggregated update itself."""
        return self.lr == 1 and not self.momentum


class Adaptive(Strict):
    """Base of adaptive optimizers: theta <- theta + lr m / (sqrt(v) + tau) with m <- beta1 m + (1 - beta1) Delta.

    Initially m is 0 and v is tau^2, as in the paper, without Adam's bias correction.
    """

    lr: float = Field(0.01, gt=0, description="server learning rate, about the largest step of a coordinate in a round")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of updates, m")
    beta2: float = Field(0.99, ge=0, lt=1, description="decay of the mean of their squares, v")
    tau: float = Field(
        1e-3, gt=0, description="degree of adaptivity: coordinates with far smaller updates move as by sgd"
    )

    @property
    def plain(self) -> bool:
        """Whether a step is the aggregated update itself."""
        return False


class ServerAdam(Adaptive):
    """Adam on the mean update (Reddi et al. 2021).

    v <- beta2 v + (1 - beta2) Delta^2.
    """

    name: Literal["adam"] = "adam"


class ServerYogi(Adaptive):
    """Yogi on the mean update (Reddi et al. 2021).

    v <- v - (1 - beta2) Delta^2 sign(v - Delta^2): the size of a change of v depends on Delta alone.
    """

    name: Literal["yogi"] = "yogi"


ServerOptimizer = ServerSGD | ServerAdam | ServerYogi


class Noise(Strict):
    """The server's noise, by its multiplier or by the epsilon of the whole run."""

    multiplier: float | None = Field(None, gt=0, description="standard deviation of the sum's noise / clip.norm")
    target_epsilon: float | None = Field(
        None, gt=0, description="epsilon of the whole run, from which the multiplier is computed"
    )
    delta: float = Field(DELTA, gt=0, lt=1, description="delta at which epsilon is stated; far below 1 / clients")

    @model_validator(mode="after")
    def _one(self) -> "Noise":
        if (self.multiplier is None) == (self.target_epsilon is None):
            raise ValueError("give either multiplier or target_epsilon")
        return self
