"""Central differential privacy: Gaussian noise on the sum of clipped updates, drawn by a trusted server.

The norm of a client's update is at most C, the bound of the uplink's clip, and the sum is divided by the expected
number of clients, not by the actual one. Adding or removing a client (user-level) changes the sum by at most C in norm,
so noise of standard deviation z C on it is a Gaussian mechanism with noise multiplier z.
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
    """Return the expected number of clients of a round, by which the sum is divided, without those that drop out.

    The ledger uses ``participation.fraction`` alone: dropouts are not secret, and so amplify no guarantee.
    """
    participation = experiment.participation
    return participation.fraction * (1 - participation.dropout) * clients


def deviation(experiment: "Experiment", clients: int) -> float:
    """Return the standard deviation of the noise on each coordinate of the mean update; 0 without ``server.noise``."""
    if not experiment.server.noise:
        return 0.0
    norm = sensitivity(experiment.uplink)
    assert norm is not None, "or it would have been refused"
    return noise_multiplier(experiment) * norm / expected(experiment, clients)


def add_noise(change_N: NDArray[np.float64], layout: Layout, deviation: float, noise: "NoiseKey", round_: int) -> None:
    """Add a round's noise to the mean update, in place.

    Args:
        change_N: The mean update of all shared coordinates.
        layout: The layout of its tensors.
        deviation: Standard deviation of the noise.
        noise: The run's key.
        round_: The round, counted from 1.
    """
    rng = noise.generator("central", round_)
    for tensor in layout.views(change_N).values():
        tensor += deviation * rng.standard_normal(tensor.shape)
