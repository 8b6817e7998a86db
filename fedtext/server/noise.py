"""Central differential privacy: Gaussian noise on the sum of clipped updates, drawn by a trusted server.

The norm of a client's update is at most C, the bound of the uplink's clip, and the sum is divided by the expected
number of clients, not by the actual one. Adding or removing a client (user-level) changes the sum by at most C in norm
if it does not change the updates of others (``fedtext.ledger.assumptions`` says where it may), so noise of standard
deviation z C on it is a Gaussian mechanism with noise multiplier z. Correlated noise (fedtext/matrix_noise) has a
multiplier for all rounds together.

The draws of a round are a function of the run's key and of the round. Noise that depends on earlier rounds is computed
anew from the first round on when a run is resumed, with the same operations and so to the same bits: a checkpoint has
no noise in it.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedtext.layout import Layout
from fedtext.ledger.adaptive_clip import adaptive_norm, number_sigma, update_multiplier
from fedtext.ledger.central import errors, round_multiplier, strategy
from fedtext.ledger.distributed import grid, is_distributed
from fedtext.matrix_noise import Errors
from fedtext.matrix_noise.strategy import Stream
from fedtext.mechanisms.base import sensitivity
from fedtext.mechanisms.clip import WITHIN
from fedtext.secure.integer_noise import rounded_gaussian
from fedtext.server.clip_norm import ClipNorm

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment
    from fedtext.state.noise_key import NoiseKey


_FINE = 20  # bits of the standard deviation of snapped noise
_FINER = 30  # of rounded noise, which needs no exact samples


def expected(experiment: "Experiment", clients: int) -> float:
    """Return the expected number of clients of a round, by which the sum is divided, without those that drop out.

    The ledger uses ``participation.fraction`` alone: dropouts are not secret, and so amplify no guarantee.
    """
    return experiment.participation.expected(clients)


def deviation(experiment: "Experiment", clients: int) -> float:
    """Return the standard deviation of the server's noise on each coordinate of the mean update; 0 if it adds none.

    With ``clip.adaptive`` it is that of the first round, and grows and falls with the norm. Of correlated noise it is
    the factor of C^-1 Z, whose first round has this standard deviation.
    """
    if not experiment.server.noise or is_distributed(experiment):
        return 0.0
    return _on_mean(experiment, clients, update_multiplier(experiment, clients, round_multiplier(experiment)))


def noise_errors(experiment: "Experiment", clients: int, coordinates: int) -> str:
    """Return the errors of the sums of mean updates in one sentence; empty without ``server.noise``.

    Args:
        experiment: The experiment.
        clients: Number of clients that can train.
        coordinates: Number of coordinates of an update.
    """
    if not experiment.server.noise:
        return ""
    made = grid(experiment, clients, coordinates)
    found, when = errors(experiment, made.error(expected(experiment, clients)) if made else None), ""
    if adaptive_norm(experiment):
        share = update_multiplier(experiment, clients, round_multiplier(experiment)) / round_multiplier(experiment)
        found, when = Errors(share * found.mean, share * found.max), ", while clip.norm is that of the first round"
    on_mean = 1.0 if made else _on_mean(experiment, clients, 1.0)
    mean, largest = on_mean * found.mean, on_mean * found.max
    return (
        f"server.noise: {experiment.server.noise.mechanism.name}: the noise in the sum of the mean updates of rounds 1 "
        f"to t has on each coordinate a standard deviation of {mean:.4g} (root mean square over t) and at most "
        f"{largest:.4g}{when}"
    )


def _on_mean(experiment: "Experiment", clients: int, multiplier: float) -> float:
    """Return a noise multiplier as a standard deviation on each coordinate of the mean update."""
    norm = sensitivity(experiment.uplink)
    assert norm is not None, "or it would have been refused"
    assert experiment.server.noise is not None
    return multiplier * norm / (experiment.server.noise.cohort_size or expected(experiment, clients))


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


def add_snapped_noise(
    change_N: NDArray[np.float64], layout: Layout, deviation: float, bound: float, noise: "NoiseKey", round_: int
) -> None:
    """Add a round's noise to the mean update, in place, so that no rounding of floats tells more than the noise allows.

    The mean is rounded to multiples of a power of two g, about a millionth of the deviation, and the noise is an exact
    sample of Gaussian noise rounded to the same multiples: what is released is the Gaussian mechanism on the rounded
    mean, rounded once more.

    Args:
        change_N: The mean update of all shared coordinates.
        layout: The layout of its tensors.
        deviation: Standard deviation of the noise.
        bound: How far a client can move the mean.
        noise: The run's key.
        round_: The round, counted from 1.
    """
    unit, wider = grid_of_floats(deviation, bound, layout.numbers)
    rng = noise.generator("central", round_)
    for tensor in layout.views(change_N).values():
        whole = np.rint(tensor / unit)
        whole += rounded_gaussian(rng, wider / unit, tensor.size).reshape(tensor.shape)
        tensor[...] = whole * unit


def grid_of_floats(deviation: float, bound: float, numbers: int, bits: int = _FINE) -> tuple[float, float]:
    """Return the power of two g to whose multiples a mean and its noise are rounded, and the noise's wider deviation.

    Rounding a mean of N coordinates adds g sqrt(N) to the distance of two means at most, and clipping in float32 a
    millionth of their bound: the noise is larger by as much.

    Args:
        deviation: Standard deviation of the noise.
        bound: How far a client can move the mean.
        numbers: Number N of coordinates.
        bits: Bits of the standard deviation.
    """
    unit = 2.0 ** (math.floor(math.log2(deviation)) - bits)
    return unit, deviation * (1 + 2.0**-_FINE + math.sqrt(numbers) * unit / bound)


def clip_norm(experiment: "Experiment", clients: int, kept: Mapping[str, NDArray[np.float32]]) -> ClipNorm | None:
    """Return the norm that follows those of the updates; None without ``clip.adaptive``.

    Args:
        experiment: The experiment.
        clients: Number of clients that can train.
        kept: The tensors that ``ClipNorm.to_keep`` returned after an earlier round; empty: the run begins.
    """
    asked, noise, first = adaptive_norm(experiment), experiment.server.noise, sensitivity(experiment.uplink)
    if asked is None or noise is None or first is None:
        return None
    size = noise.cohort_size or expected(experiment, clients)
    return ClipNorm(asked, first, number_sigma(experiment, clients) / size, kept)


class ServerNoise:
    """The noise of a run, round by round.

    Args:
        experiment: The experiment; without ``server.noise`` nothing is added.
        clients: Number of clients that can train.
        layout: The layout of the mean update.
        key: The run's key.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.
    """

    def __init__(
        self,
        experiment: "Experiment",
        clients: int,
        layout: Layout,
        key: "NoiseKey",
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.deviation, self.layout, self.key = deviation(experiment, clients), layout, key
        self.norm = clip_norm(experiment, clients, kept or {})
        if self.norm:
            self.layout = Layout({name: shape for name, shape in layout.shapes.items() if name != WITHIN})
        self.expected = expected(experiment, clients) if self.deviation else None
        asked = experiment.server.noise
        # Of the larger cohort, actual or simulated: a client's part of its mean is the smaller one.
        self.size = max(self.expected or 1.0, asked.cohort_size or 0 if asked else 0)
        self.bound = (sensitivity(experiment.uplink) or 0.0) / self.size  # of a client's part of the mean
        self.strategy = strategy(experiment)
        self.stream: Stream | None = None
        self.done = 0  # rounds of the stream

    def add(self, change_N: NDArray[np.float64], round_: int) -> None:
        """Add a round's noise to the mean update, in place.

        Args:
            change_N: The mean update of all shared coordinates.
            round_: The round, counted from 1.
        """
        if self.norm:
            self._add(change_N, self.norm.growth, round_)
            self.norm.step(self._noised(float(change_N[self.layout.size]), self.norm.sigma, round_))
            return
        if self.strategy is None:
            self._add(change_N, 1.0, round_)
            return
        if self.stream is None or self.done >= round_:
            self.stream, self.done = self.strategy.stream(), 0
        while self.done < round_:
            self.done += 1
            noise_N = self.stream.step(partial(self._drawn, self.done))
        if self.key.secret:
            unit, wider = grid_of_floats(self.deviation, self.bound, self.layout.numbers, _FINER)
            change_N[:] = unit * (np.rint(change_N / unit) + np.rint(wider / unit * noise_N))
        else:
            change_N += self.deviation * noise_N

    def _noised(self, within: float, sigma: float, round_: int) -> float:
        """Return the share of updates within the norm less 1/2, with noise of deviation ``sigma``."""
        rng, bound = self.key.generator("central/within", round_), 0.5 / self.size
        if not self.key.secret:
            return within + sigma * rng.standard_normal()
        unit, wider = grid_of_floats(sigma, bound, 1)
        return unit * float(np.rint(within / unit) + rounded_gaussian(rng, wider / unit, 1)[0])

    def _add(self, change_N: NDArray[np.float64], growth: float, round_: int) -> None:
        """Add independent noise; from a secret key so that it holds in floating point too."""
        if self.key.secret:
            bound = self.bound * growth
            add_snapped_noise(change_N, self.layout, self.deviation * growth, bound, self.key, round_)
        else:
            add_noise(change_N, self.layout, self.deviation * growth, self.key, round_)

    @property
    def metrics(self) -> Mapping[str, float]:
        """The norm of the last round and the share of updates within it, with ``clip.adaptive``."""
        return self.norm.metrics if self.norm else {}

    def after(self, flat_N: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the broadcast, followed by what clients need to bound their updates."""
        return self.norm.after(flat_N) if self.norm else flat_N

    def to_keep(self) -> dict[str, NDArray[np.float32]]:
        """Return the tensors for a checkpoint."""
        return self.norm.to_keep() if self.norm else {}

    def _drawn(self, round_: int, level: int) -> NDArray[np.float64]:
        """Return standard normal draws, 0 between tensors. Those of level 0 are the draws of independent noise."""
        drawn_N = np.zeros(self.layout.size)
        rng = self.key.generator(f"central/{level}" if level else "central", round_)
        for tensor in self.layout.views(drawn_N).values():
            tensor[...] = rng.standard_normal(tensor.shape)
        return drawn_N
