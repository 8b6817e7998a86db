"""Noise that clients add in integers before the masks of secure aggregation, and its guarantee.

An update of norm C or less becomes integers of norm S or less (``accounting.distributed.rounded_norm``), in steps.
Each client adds noise of variance (z S)^2 / s to each of its coordinates, and s is the least number of clients of a
sum whose noise an adversary does not know: participation.min_clients, less those who may show the server theirs. So the
noise that is sure has a standard deviation of z S. A sum has more if more clients take part; the server adds none.

The guarantee is against the server too. It knows who takes part, so that no sample amplifies the guarantee, and it is
against a server that follows the protocol.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fedtext.accounting import composition
from fedtext.accounting import distributed as accounting
from fedtext.accounting.distributed import LARGEST, Kind, Shares, rounded_norm
from fedtext.accounting.entry import Added, Entry, Unit
from fedtext.accounting.masks import counted
from fedtext.config.noise import DiscreteGaussianNoise, Distributed, SkellamNoise
from fedtext.config.secure import BITS, RING, levels, room
from fedtext.errors import UserError
from fedtext.ledger.assumptions import ROUNDS, WITHOUT_MASKS, drawn, failing, influences
from fedtext.ledger.outside import outside
from fedtext.matrix_noise.strategy import participations
from fedtext.mechanisms.base import sensitivity

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

_SAFE = 10  # standard deviations of the noise in a sum that have room beside it
_NAMES: dict[type[Distributed], Kind] = {DiscreteGaussianNoise: "discrete_gaussian", SkellamNoise: "skellam"}


@dataclass(frozen=True)
class Grid:
    """How updates become integers with noise.

    Attributes:
        bits: Bits of a coordinate.
        step: What an integer 1 stands for.
        norm: Largest norm of an update, in steps, before it is rounded.
        clients: Least number of clients of a sum.
        multiplier: The noise multiplier z.
        noise: The noise that is sure.
    """

    bits: int
    step: float
    norm: float
    clients: int
    multiplier: float
    noise: Shares

    def error(self, clients: float) -> float:
        """Return the standard deviation of the noise on a coordinate of the mean update of this number of clients."""
        return self.step * math.sqrt(self.noise.variance / clients)


@dataclass(frozen=True)
class _Asked:
    """The quantities that determine a grid, for each number of bits."""

    kind: Kind
    clients: int  # largest number of a round
    summands: int  # the clients, and canaries
    least: int  # of a sum
    sure: int  # whose noise is
    norm: float
    range: float
    coordinates: int
    multiplier: float | None
    target: float | None
    delta: float
    rounds: int


@lru_cache(maxsize=256)
def _grid(asked: _Asked, bits: int) -> Grid:
    """Return the grid with this number of bits."""
    step = asked.range / levels(bits)
    norm = asked.norm / step
    unit = Shares.unit(asked.kind, asked.sure, rounded_norm(norm, asked.coordinates), asked.coordinates)
    z = asked.multiplier
    if z is None:
        assert asked.target is not None
        z = accounting.multiplier_for(asked.target, unit, asked.rounds, asked.delta)
    return Grid(bits, step, norm, asked.least, z, unit.times(z))


def _fits(asked: _Asked, bits: int) -> bool:
    """Whether a sum of coordinates with this number of bits has room for its noise."""
    noise = _grid(asked, bits).noise
    beside = _SAFE * math.sqrt(asked.clients * noise.variance)
    counted = noise.variance <= LARGEST and noise.sensitivity < 2**30  # whose square is that of a 64-bit integer
    return counted and asked.summands * levels(bits) + beside < 2 ** (RING - 1)


def summands(experiment: "Experiment", clients: int) -> int:
    """Return the largest number of updates in a round's sum: of clients, and of canaries.

    Args:
        experiment: The experiment.
        clients: Number of clients that can train.
    """
    canaries = experiment.privacy.canaries
    return experiment.participation.largest(clients) + (canaries.clients if canaries else 0)


def is_distributed(experiment: "Experiment") -> bool:
    """Return whether clients add the noise of ``server.noise``."""
    noise = experiment.server.noise
    return noise is not None and isinstance(noise.mechanism, Distributed)


def grid(experiment: "Experiment", clients: int, coordinates: int) -> Grid | None:
    """Return how updates become integers with noise; None if clients add no noise.

    Args:
        experiment: The experiment.
        clients: Number of clients that can train.
        coordinates: Number of coordinates of an update.

    Raises:
        UserError: No client's noise is sure, a sum has no room for it, or nothing is known of so little noise.
    """
    noise, secure = experiment.server.noise, experiment.server.secure_aggregation
    if noise is None or secure is None or not isinstance(noise.mechanism, Distributed):
        return None
    norm, participation = sensitivity(experiment.uplink), experiment.participation
    assert norm is not None, "or it would have been refused"
    largest, least = participation.largest(clients), participation.min_clients
    sure = least - counted(secure.colluding, largest)
    key = f"server.noise.mechanism: {noise.mechanism.name}"
    if sure < 1:
        raise UserError(
            f"{key}: a sum of participation.min_clients = {least} updates may have no noise but that of {least - sure} "
            f"clients who show the server theirs (server.secure_aggregation.colluding, of {largest}): set min_clients "
            "to the least number of clients that a round will have, or lower colluding"
        )
    count = composed(experiment, experiment.training.rounds)
    asked = _Asked(
        *(_NAMES[type(noise.mechanism)], largest, summands(experiment, clients), least, sure),
        *(norm, secure.range, coordinates, noise.multiplier),
        *(noise.target_epsilon, noise.delta, count),
    )
    most = min(BITS, room(asked.summands))
    bits = secure.bits or next((bits for bits in range(most, 2, -1) if _fits(asked, bits)), 2)
    if not _fits(asked, bits):
        raise UserError(
            f"server.secure_aggregation.bits: the sum of {asked.summands} updates of {bits} bits and their noise may "
            f"need more than {RING}: lower bits, or set range nearer to the norm of uplink's clip"
        )
    made = _grid(asked, bits)
    if not math.isfinite(accounting.divergence(made.noise, 2)):
        raise UserError(
            f"{key}: a client's noise has a standard deviation of {math.sqrt(made.noise.variance):.2g} steps, and "
            "nothing is known of sums of less than 1/2: raise server.secure_aggregation.bits or the multiplier, or use "
            "skellam"
        )
    return made


def composed(experiment: "Experiment", rounds: int) -> int:
    """Return how many of the rounds a client can be in."""
    return participations(rounds, experiment.participation.apart or 1)


def entries(experiment: "Experiment", made: Grid, clients: int, rounds: int) -> Iterator[Entry]:
    """Yield the entries of noise that clients add.

    Args:
        experiment: The experiment.
        made: Its noise.
        clients: Number of clients.
        rounds: Number of rounds after which the guarantees are stated.
    """
    assert experiment.server.noise is not None
    delta, count = experiment.server.noise.delta, composed(experiment, rounds)
    rests = [neighbours(experiment), *failing(experiment, clients, count, delta), drawn(experiment)]
    rests += [*influences(experiment, clients), _SAMPLES, ROUNDS]
    assumptions = "; ".join([*rests, outside(experiment)])
    norm = sensitivity(experiment.uplink)
    about = (
        f"distributed {made.noise.kind.replace('_', ' ')}, noise multiplier {made.multiplier:.4g}, sensitivity "
        f"{made.noise.sensitivity * made.step:.6g} of updates of norm {norm:.4g} rounded to {made.step:.3g}, the noise "
        f"of {made.noise.count} clients"
    )
    each: tuple[tuple[Unit, int, str], ...] = (
        ("client and round", 1, ""),
        ("run", count, f", {count} of {rounds} rounds" if count < rounds else f", {rounds} rounds"),
    )
    for unit, times, said in each:
        if composition.available():
            epsilon = accounting.epsilon(made.noise, times, delta)
            added = Added(made.noise, times) if unit == "run" else None
            yield Entry("server.noise", unit, epsilon, delta, about + said, assumptions, added=added)
        else:
            yield Entry("server.noise", unit, None, delta, f"not computed: {composition.INSTALL}", assumptions)


_SAMPLES = "who takes part in which round depends on no client's texts, and amplifies nothing"


def neighbours(experiment: "Experiment") -> str:
    """Return which inputs the noise of clients makes hard to tell apart, and against whom."""
    secure = experiment.server.secure_aggregation
    assert secure is not None
    said = (
        "with a client's updates or with zeros in their place, while all others take part in the same rounds "
        "(zero-out), against anyone who sees the sums of all rounds, with the noise of "
        f"{secure.colluding:.0%} of a round's clients; "
    )
    if secure.masks:
        return f"{said}the server is among them, if it follows the protocol of secure aggregation"
    return f"{said}{WITHOUT_MASKS}"
