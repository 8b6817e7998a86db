"""The keys of the server: its aggregation, its optimizer and its buffer. Those of its noise are in noise.py."""

from typing import Literal

from pydantic import Field

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

    theta <- theta + lr m / (sqrt(v) + tau) with m <- beta1 m + (1 - beta1) Delta and v <- beta2 v + (1 - beta2)
    Delta^2. Initially m is 0 and v is tau^2; there is no bias correction.
    """

    name: Literal["adam"] = "adam"


class ServerYogi(Adaptive):
    """Yogi on the mean update (Reddi et al. 2021).

    As adam, but v <- v - (1 - beta2) Delta^2 sign(v - Delta^2): the size of a change of v depends on Delta alone.
    """

    name: Literal["yogi"] = "yogi"


ServerOptimizer = ServerSGD | ServerAdam | ServerYogi


class Buffer(Strict):
    """Asynchronous training (FedBuff, Nguyen et al. 2022): a round is a step of the server, after a number of updates.

    participation.fraction of the clients train at any time, each on the parameters of the step after which it began;
    participation.pace says how long they take.
    """

    size: int = Field(10, ge=1, description="number of updates after which the server makes a step")
    staleness_exponent: float = Field(
        0.5,
        ge=0,
        le=10,
        description="a: an update counts (1 + t)^-a times as much, t being the number of steps since its client began; "
        "0: all updates count alike",
    )
