"""Central differential privacy: gaussian noise on the sum of clipped updates, drawn by a server that is trusted.

A client counts for at most C, the norm its uplink's clip leaves it, in a sum that is divided by the number of clients
expected, not by how many came: with or without a client (add-remove, user-level) the sum moves by C at most, and noise
of standard deviation z C on it is a gaussian mechanism of noise multiplier z.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.layout import Layout
from fedtext.ledger import bounds, noise_multiplier
from fedtext.ledger.entry import DELTA, Bound
from fedtext.methods.base import Individual
from fedtext.schema import Strict

if TYPE_CHECKING:
    from fedtext.experiment import Experiment
    from fedtext.noise import NoiseKey


class Noise(Strict):
    """How much noise: by its multiplier, or by the epsilon that all rounds together may spend."""

    multiplier: float | None = Field(None, gt=0, description="standard deviation of the sum's noise / clip.norm")
    target_epsilon: float | None = Field(None, gt=0, description="of the whole run: the multiplier is solved for")
    delta: float = Field(DELTA, gt=0, lt=1, description="at which epsilon is stated; far below 1 / clients")

    @model_validator(mode="after")
    def _one(self) -> "Noise":
        if (self.multiplier is None) == (self.target_epsilon is None):
            raise ValueError("give either multiplier or target_epsilon")
        return self


def flaw(experiment: "Experiment") -> str:
    """Why ``server.noise`` would guarantee nothing here, and what to set; empty if it would."""
    method, participation = experiment.method, experiment.participation
    if method.pooled:
        return f"method {method.name} has all data in one place, where no noise protects it: leave it out"
    if isinstance(method, Individual):
        return f"it is added to a sum of updates, and {method.name} combines them in its own way: leave out one of them"
    if sensitivity(experiment) is None:
        return "nothing bounds what a client adds to the sum: set clip as the last mechanism of uplink"
    if experiment.server.weights != "uniform":
        return "n_k-weighted updates have no common bound: set server.weights: uniform"
    if participation.fraction < 1 and participation.sampling != "poisson":
        return (
            "with cohorts of a fixed size one client's absence brings in another: set participation.sampling: poisson"
        )
    if experiment.shares_table and experiment.own_rows:
        return "own rows name the words of a client, and no noise hides them: set wire.rows: all"
    return ""


def expected(experiment: "Experiment", clients: int) -> float:
    """How many clients a round is expected to have, which the sum is divided by: less those that happen to be away.
    The ledger counts with ``fraction`` alone, since who is away is no secret that could hide a client."""
    participation = experiment.participation
    return participation.fraction * (1 - participation.dropout) * clients


def sensitivity(experiment: "Experiment") -> float | None:
    """C, the L2 norm that no client's update exceeds when it is summed; None if nothing bounds it, as behind noise."""
    behind: Bound = bounds(experiment.uplink)[-1]
    return None if behind.variance else behind.norm


def deviation(experiment: "Experiment", clients: int) -> float:
    """Standard deviation of the noise on each coordinate of the mean update; 0 without ``server.noise``."""
    if not experiment.server.noise:
        return 0.0
    norm = sensitivity(experiment)
    assert norm is not None, "or it would have been refused"
    return noise_multiplier(experiment) * norm / expected(experiment, clients)


def add_noise(change_N: NDArray[np.float64], layout: Layout, deviation: float, noise: "NoiseKey", round_: int) -> None:
    """Adds a round's noise to the mean update, in place.

    Args:
        change_N: The mean update of all shared coordinates.
        layout: Where its tensors are.
        deviation: Standard deviation of the noise.
        noise: The run's key.
        round_: The round, counted from 1.
    """
    rng = noise.generator("central", round_)
    for tensor in layout.views(change_N).values():
        tensor += deviation * rng.standard_normal(tensor.shape)
