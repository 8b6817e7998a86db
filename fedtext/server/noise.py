"""Central differential privacy: gaussian noise on the sum of clipped updates, drawn by a server that is trusted.

A client counts for at most C, the norm its uplink's clip leaves it, in a sum that is divided by the number of clients
expected, not by how many came: with or without a client (add-remove, user-level) the sum moves by C at most, and noise
of standard deviation z C on it is a gaussian mechanism of noise multiplier z.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedtext.layout import Layout
from fedtext.ledger import noise_multiplier
from fedtext.mechanisms.base import sensitivity

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment
    from fedtext.state.noise_key import NoiseKey


def expected(experiment: "Experiment", clients: int) -> float:
    """How many clients a round is expected to have, which the sum is divided by: less those that happen to be away.
    The ledger counts with ``fraction`` alone, since who is away is no secret that could hide a client."""
    participation = experiment.participation
    return participation.fraction * (1 - participation.dropout) * clients


def deviation(experiment: "Experiment", clients: int) -> float:
    """Standard deviation of the noise on each coordinate of the mean update; 0 without ``server.noise``."""
    if not experiment.server.noise:
        return 0.0
    norm = sensitivity(experiment.uplink)
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
