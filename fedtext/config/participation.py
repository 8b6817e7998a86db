"""The keys of participation: which clients take part in a round, and which of them return in time."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedtext.schema import FORMS, KEYS, VALUE, Strict

FEW = 1000  # clients whose weights together do not make the addends of a round's sum too coarse
_HOURS = 1440  # the most of a day on a simulated clock, which looks at one after the other
_WHOLE = 1e-3  # how far rounds * fraction of an epoch may be from 1, so that 0.333 is a third


class Availability(Strict):
    """Availability of clients over the day, at different times in different places.

    A client is available in hour h with probability night + (1 - night) (1 + cos(2 pi (h / day - p_k))) / 2; its noon,
    p_k of a day, is drawn from the seed. A round is an hour; with ``hour_s``, an hour is that many simulated seconds.
    """

    day: int = Field(24, ge=2, description="hours of a day, each of which is a round if hour_s is null")
    night: float = Field(
        0.1, ge=0, le=1, description="probability that a client is available at its midnight; at its noon it is 1"
    )
    hour_s: float | None = Field(
        None,
        ge=1e-3,
        description="simulated seconds of an hour: clients are sampled among those available at the time when a round "
        "or, with server.buffer, an update begins; null: an hour is a round",
    )

    @model_validator(mode="after")
    def _countable(self) -> "Availability":
        if self.hour_s is not None and self.day > _HOURS:
            raise ValueError(f"day: {self.day} hours, and with hour_s a day has at most {_HOURS}: lower it")
        return self


class Pareto(Strict):
    """Speeds with a heavy tail: a few clients are very much slower than all others.

    The time factor 1 / a_k has a Pareto distribution with median 1: P(1 / a_k > x) = 1 / (2 x^pareto) for
    x >= 2^(-1 / pareto). Lifetimes of processes have such tails, with a shape near 1 (Harchol-Balter and Downey 1997,
    "Exploiting Process Lifetime Distributions for Dynamic Load Balancing"); times of devices in federated learning span
    two orders of magnitude (Huba et al. 2022, "PAPAYA").
    """

    pareto: float = Field(
        ge=0.1, le=100, description="shape of the tail: the smaller, the heavier; up to 1 the mean time is infinite"
    )


class Pace(Strict):
    """How long local updates take, in simulated seconds, which no computation waits for.

    The update of client k takes n_k local_epochs / (texts_per_second a_k) b, with n_k train texts. a_k is the client's
    speed and b differs in every round; both are log-normal with median 1, and drawn from the seed. With
    ``spread: {pareto: 1.1}`` it is 1 / a_k that is drawn, from a distribution with a heavier tail.
    """

    texts_per_second: float = Field(100.0, ge=1e-9, description="texts that a client of median speed reads in a second")
    spread: Annotated[Annotated[float, Field(ge=0, le=10), VALUE] | Annotated[Pareto, KEYS], FORMS] = Field(
        0.5, description="standard deviation of log a_k; 0: all clients are as fast; or {pareto: SHAPE}: a heavy tail"
    )
    jitter: float = Field(0.2, ge=0, le=10, description="standard deviation of log b; 0: a client is always as fast")


class Participation(Strict):
    """The clients of a round."""

    fraction: float = Field(1.0, gt=0, le=1, description="share of the clients sampled in each round")
    sampling: Literal["fixed", "poisson", "separated", "epochs"] = Field(
        "fixed",
        description="fixed: the same number of clients in each round; poisson: each client independently with "
        "probability fraction; separated: as fixed, of those who have not been sampled in the last separation - 1 "
        "rounds; epochs: each client once in 1 / fraction rounds, in an order that is drawn once and repeated",
    )
    separation: int | None = Field(
        None, ge=1, description="least number of rounds from one sample with a client to the next, for separated"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="probability that a sampled client is not available")
    availability: Availability | None = Field(
        None, description="when clients can be sampled, by the time of their day; null: always"
    )
    pace: Pace | None = Field(None, description="how long local updates take in simulated time; null: no such clock")
    deadline_s: float | None = Field(
        None, gt=0, description="simulated seconds after which a round leaves out those who have not returned"
    )
    over_selection: float = Field(
        1.0,
        ge=1,
        le=100,
        description="times as many clients are sampled as a round needs; it ends when as many as it needs have "
        "returned, in simulated time",
    )
    on_client_error: Literal["fail", "skip"] = Field(
        "fail",
        description="after a NaN loss, an exception or an unusable update of a client, in training or evaluation, fail "
        "the run or skip the client",
    )
    min_clients: int = Field(
        1,
        ge=1,
        description="least number of clients whose updates a round needs; a round with fewer is repeated with another "
        "sample, and after three attempts the run fails; with 1 a round that no client begins (dropout) counts",
    )

    @model_validator(mode="after")
    def _apart(self) -> "Participation":
        if (self.separation is None) == (self.sampling == "separated"):
            fix = "set separation" if self.separation is None else "set sampling: separated, or leave separation out"
            raise ValueError(f"separation: it is for sampling: separated, and only for that: {fix}")
        if self.sampling != "epochs":
            return self
        if abs(self.epoch * self.fraction - 1) > _WHOLE:
            raise ValueError(
                f"fraction: an epoch is 1 / fraction rounds, which for {self.fraction:g} is no whole number: set it to "
                f"{1 / self.epoch:.4g}"
            )
        if self.availability or self.over_selection > 1:
            key = "availability" if self.availability else "over_selection"
            raise ValueError(f"{key}: with sampling: epochs the clients of each round are fixed: leave one of them out")
        return self

    @model_validator(mode="after")
    def _timed(self) -> "Participation":
        if self.pace is None and (self.deadline_s is not None or self.over_selection > 1):
            key = "deadline_s" if self.deadline_s is not None else "over_selection"
            raise ValueError(f"{key}: it needs to be known how long clients take: set pace, to {{}} for its defaults")
        if self.availability and self.availability.hour_s:
            if self.pace is None:
                raise ValueError(
                    "availability.hour_s: it needs to be known how long clients take: set pace, to {} for its defaults"
                )
            if self.sampling == "separated":
                raise ValueError(
                    "availability.hour_s: samples of sampling: separated are planned by rounds: leave out one of them"
                )
        if self.over_selection > 1 and self.sampling == "poisson":
            raise ValueError(
                "over_selection: a Poisson sample has no size that would be enough: set sampling: fixed, or leave it "
                "out"
            )
        return self

    @property
    def epoch(self) -> int:
        """Number of rounds in which each client takes part once, with ``sampling: epochs``."""
        return max(1, round(1 / self.fraction))

    @property
    def apart(self) -> int | None:
        """The least number of rounds from one participation of a client to its next; None: none is guaranteed.

        It does not depend on clients' data. Clients that drop out or are late are counted as participants.
        """
        if self.sampling == "epochs":
            return self.epoch
        return self.separation or (1 if self.fraction == 1 else None)

    def largest(self, clients: int) -> int:
        """Return the largest number of ``clients`` clients that a round can have."""
        if self.sampling == "poisson":
            return clients
        return -(-clients // self.epoch) if self.sampling == "epochs" else max(1, round(self.fraction * clients))

    def invited(self, clients: int) -> int:
        """Return the number of ``clients`` clients that a round samples, also of those that it does not wait for; the
        expected one, rounded, of a Poisson sample, or 1 if that is smaller."""
        if self.sampling == "poisson":
            return max(1, round(clients * self.fraction))
        return min(clients, self.over_selected(self.largest(clients)))

    def over_selected(self, needed: int) -> int:
        """Return the number of clients that are sampled for a round that needs so many."""
        return math.ceil(round(self.over_selection * needed, 9))  # 1.1 * 50 is more than 55 in floating point

    def late(self, clients: int, invited: int) -> int:
        """Return how many clients of a round it does not wait for: all but those it needs, with ``over_selection``.

        Args:
            clients: Number of clients.
            invited: Number of the round's clients.
        """
        return max(0, invited - self.largest(clients)) if self.over_selection > 1 else 0

    def summed(self, clients: int, buffer: int | None) -> int:
        """Return the number of ``clients`` clients whose updates a round is expected to add up; at least 1.

        Clients that drop out and those that a round does not wait for are left out, those after ``deadline_s`` are not.

        Args:
            clients: Number of clients.
            buffer: Size of the buffer of asynchronous training, which is that of a round; None: it is synchronous.
        """
        invited = self.invited(clients)
        if buffer is not None:
            return min(buffer, invited)
        needed = invited if self.sampling == "poisson" else self.largest(clients)
        return max(1, min(needed, round(invited * (1 - self.dropout))))

    def expected(self, clients: int) -> float:
        """Return the expected number of clients of a round, without those that drop out.

        With ``separated`` it is the number of clients that are sampled if enough are available.
        """
        if self.sampling == "separated":
            return self.largest(clients) * (1 - self.dropout)
        fraction = 1 / self.epoch if self.sampling == "epochs" else self.fraction
        return fraction * (1 - self.dropout) * clients

    @property
    def simulates(self) -> bool:
        """Whether clients can be unavailable or late, beside those that drop out."""
        return self.availability is not None or self.timed

    @property
    def timed(self) -> bool:
        """Whether the time that clients take decides on whose updates are used."""
        return self.deadline_s is not None or self.over_selection > 1

    @property
    def complete(self) -> bool:
        """Whether all clients take part in every round."""
        return self.fraction == 1 and not self.dropout and not self.simulates
