"""Updates as integers modulo 2^32, and their sums.

Legend: N coordinates of an update, in the order of its tensors.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.config.secure import BITS, SecureAggregation, levels, room
from fedtext.errors import UserError
from fedtext.layout import Layout
from fedtext.ledger.distributed import Grid, grid, is_distributed, summands
from fedtext.messages import Update
from fedtext.secure import integer_noise

_CHUNK = 1 << 15  # coordinates at a time, so that intermediate results stay in the cache

Samples = Sequence[int] | NDArray[np.int64]


class Ring:
    """How the updates of an experiment become integers, and a sum of integers a mean update.

    A coordinate v of client k becomes round(v w_k / w_max / step), so that the sum of all is a multiple of the weighted
    sum. With ``server.noise``, rounding is toward zero: no update's norm then grows beyond its bound. If clients add
    the noise, rounding is random and unbiased, and repeated while the norm has grown beyond its bound
    (``accounting.distributed.rounded_norm``).

    Args:
        experiment: The experiment, with ``server.secure_aggregation``.
        samples: Number of train texts of each client that could ever take part.
        coordinates: Number of coordinates of an update, if clients add noise.

    Attributes:
        levels: Largest absolute value of a coordinate, as an integer.
        step: What an integer 1 stands for.
        grid: The noise that clients add; None if they add none.

    Raises:
        UserError: A sum of a round's integers may be larger than 32 bits hold.
    """

    def __init__(self, experiment: Experiment, samples: Samples, coordinates: int = 0) -> None:
        config = experiment.server.secure_aggregation
        assert config is not None
        self.config: SecureAggregation = config
        self.uniform = experiment.server.weights == "uniform"
        self.largest = 1.0 if self.uniform else float(max(samples, default=1) or 1)
        clients = summands(experiment, len(samples))
        assert coordinates or not is_distributed(experiment), "or the norm of rounded updates is not known"
        self.grid = grid(experiment, len(samples), coordinates)
        bits = self.grid.bits if self.grid else config.bits or min(BITS, room(clients))
        if bits > room(clients) or bits < 2:
            raise UserError(
                f"server.secure_aggregation.bits: the sum of {clients} updates of {bits} bits may need more than 32: "
                f"set bits to {max(room(clients), 2)} or less, or lower participation.fraction"
            )
        self.levels = levels(bits)
        self.step = config.range / self.levels
        self.rounded = np.trunc if experiment.server.noise else np.rint

    def integers(self, update: Update, rng: np.random.Generator | None = None) -> tuple[NDArray[np.uint32], float]:
        """Return an update in integers, and the share of its coordinates that were cut off at ``range``.

        Args:
            update: The update as the server would decode it, with all rows of the table.
            rng: Source of the client's noise, and of its rounding; None: it adds none.

        Returns:
            The integers of all tensors in their order, shape (N,), and the share.
        """
        assert self.grid is None or rng is not None, "or it has no noise"
        made_N, cut = self._scaled(update)
        if self.grid and rng is not None:
            made_N = noised(self.grid, made_N, rng)
        return made_N.view(np.uint32), cut

    def without_noise(self, update: Update, rng: np.random.Generator) -> NDArray[np.uint32]:
        """Return an update in integers to which no client's noise is added: one that is no client's.

        Args:
            update: The update, with all rows of the table.
            rng: Source of its rounding.

        Returns:
            The integers of all tensors in their order, shape (N,).
        """
        made_N, _ = self._scaled(update)
        made_N = rounded(self.grid, made_N, rng).astype(np.int32) if self.grid else made_N
        return made_N.view(np.uint32)

    def _scaled(self, update: Update) -> tuple[NDArray[Any], float]:
        """Return an update in steps, and the share of its coordinates that were cut off.

        They are int32, but float64 if they are still to be rounded at random.
        """
        assert update.rows is None, "or its rows would be seen"
        factor = (1.0 if self.uniform else update.samples / self.largest) / self.step
        size = sum(tensor.size for tensor in update.tensors.values())
        made_N: NDArray[Any] = np.empty(size, np.float64 if self.grid else np.int32)
        done = cut = 0
        for delta in update.tensors.values():
            flat = delta.reshape(-1)
            for start in range(0, flat.size, _CHUNK):
                part = np.multiply(flat[start : start + _CHUNK], factor, dtype=np.float64)
                if not self.grid:
                    self.rounded(part, out=part)
                cut += self._cut(part)
                made_N[done : done + part.size] = part
                done += part.size
        return made_N, cut / max(1, done)

    def _cut(self, part: NDArray[np.float64]) -> int:
        """Cut values off at the largest level, in place, and return how many there were."""
        if not part.size or max(part.max(), -part.min()) <= self.levels:
            return 0
        beyond = int(np.count_nonzero(np.abs(part) > self.levels))
        np.clip(part, -self.levels, self.levels, out=part)
        return beyond


def noised(grid: Grid, update_N: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.uint32]:
    """Round an update, and add a client's noise (Kairouz, Liu and Steinke 2021, algorithm 1, without its rotation).

    Args:
        grid: The noise.
        update_N: The update in steps. It is overwritten.
        rng: Source of random numbers.

    Returns:
        The integers modulo 2^32.
    """
    rounded_N = rounded(grid, update_N, rng)
    draw = integer_noise.discrete_gaussian if grid.noise.kind == "discrete_gaussian" else integer_noise.skellam
    rounded_N += draw(rng, grid.noise.variance, len(rounded_N))
    return rounded_N.astype(np.uint32)


def rounded(grid: Grid, update_N: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Round an update at random, again while its norm has grown too much.

    Args:
        grid: The noise.
        update_N: The update in steps. It is overwritten.
        rng: Source of random numbers.
    """
    length = math.sqrt(float(update_N @ update_N))
    if length > grid.norm:  # by what clip leaves to the rounding of float32
        update_N *= grid.norm / length
    lower_N = np.floor(update_N)
    update_N -= lower_N
    most, squared = math.floor(grid.noise.sensitivity**2), math.inf
    while squared > most:
        rounded_N = lower_N.astype(np.int64)
        rounded_N += rng.random(len(update_N)) < update_N
        squared = int(rounded_N @ rounded_N)
    return rounded_N


def in_integers(update: Update, integers_N: NDArray[np.uint32]) -> Update:
    """Return an update with integers in place of its coordinates: views of ``integers_N``, in the order of tensors."""
    ends = np.cumsum([tensor.size for tensor in update.tensors.values()])[:-1]
    parts = zip(update.tensors.items(), np.split(integers_N, ends), strict=True)
    tensors: dict[str, NDArray] = {name: part.reshape(tensor.shape) for (name, tensor), part in parts}
    return Update(update.client, update.samples, tensors)


class RingSum:
    """The sum of the integers of some clients modulo 2^32. See ``fedtext.server.aggregation.Sum``.

    Args:
        layout: The tensors of an update.
        ring: What the integers stand for.
        scale: Sum of the weights of all clients.

    Attributes:
        members: The clients whose updates are in the sum.
        shapes: Shapes of the tensors that they sent.
    """

    def __init__(self, layout: Layout, ring: Ring, scale: float) -> None:
        self.layout, self.ring, self.scale = layout, ring, scale
        self.members: list[int] = []
        self.shapes: Mapping[str, tuple[int, ...]] = {}
        self.weight = 0.0
        self.sum_N = np.zeros(layout.size, np.uint32)

    def add(self, update: Update) -> None:
        """Add an update in integers, masked or not."""
        self.members.append(update.client)
        self.shapes = {name: tensor.shape for name, tensor in update.tensors.items()}
        self.weight += 1.0 if self.ring.uniform else float(update.samples)
        for name, tensor in update.tensors.items():
            first = self.layout.starts[name]
            self.sum_N[first : first + tensor.size] += tensor.reshape(-1).view(np.uint32)

    def insert(self, update: Update, rng: np.random.Generator) -> None:
        """Add an update of no client, without mask and noise. See ``fedtext.server.aggregation.Sum``."""
        inserted, done = self.ring.without_noise(update, rng), 0
        for name, tensor in update.tensors.items():
            first = self.layout.starts[name]
            self.sum_N[first : first + tensor.size] += inserted[done : done + tensor.size]
            done += tensor.size

    def merge(self, other: "RingSum") -> None:
        """Add another partial sum."""
        self.members += other.members
        self.shapes = other.shapes or self.shapes
        self.weight += other.weight
        self.sum_N += other.sum_N

    def subtract(self, masks_N: NDArray[np.uint32]) -> None:
        """Subtract masks, in the order of the tensors that were sent."""
        done = 0
        for name, shape in self.shapes.items():
            first, size = self.layout.starts[name], math.prod(shape)
            self.sum_N[first : first + size] -= masks_N[done : done + size]
            done += size

    @property
    def coordinates(self) -> int:
        """Number of coordinates that each client sent."""
        return sum(map(math.prod, self.shapes.values()))

    def metrics(self) -> Mapping[str, float]:
        """Return the metrics of the aggregation: none."""
        return {}

    def mean(self, expected: float | None = None) -> NDArray[np.float64] | None:
        """Return the weighted mean of the updates, all of whose masks are removed.

        Args:
            expected: With uniform weights, the divisor: the expected number of clients. None: the sum of weights.

        Returns:
            The mean; None if no one took part and ``expected`` is None.
        """
        if not self.weight and expected is None:
            return None
        mean_N = self.sum_N.view(np.int32).astype(np.float64)
        mean_N *= self.ring.step * self.ring.largest / (expected or self.weight)
        return mean_N
