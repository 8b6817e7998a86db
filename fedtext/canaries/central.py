"""Canaries under the server's noise: half of them are clients, whom the released parameters are searched for.

Legend: T rounds, P rounds that draws of noise are told apart by, N coordinates, K canaries.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from fedtext.canaries.base import CanaryClients
from fedtext.canaries.plan import product
from fedtext.ledger.central import strategy
from fedtext.matrix_noise import Strategy
from fedtext.messages import Update

_LONGEST = 2048  # rounds whose covariance is inverted


class CentralCanaries(CanaryClients):
    """Canaries that take part like clients: in Poisson samples, or as often as a client may.

    The score of a canary is the product of its direction with a weighted sum of the changes of the shared parameters.
    If the rounds of a canary are not secret, the weights are those of the likelihood ratio under all rounds' noise.
    """

    name = "sum"

    @property
    def size(self) -> int:
        return self.layout.size

    @cached_property
    def weights(self) -> NDArray[np.float64] | None:
        """The weight of each round, if noise depends on earlier rounds; None: all that is searched has weight 1."""
        made = strategy(self.experiment)
        return likelihood_weights(made) if made and made.rounds <= _LONGEST else None

    @property
    def apart(self) -> int | None:
        """Least number of rounds from one participation to the next; None: rounds have Poisson samples."""
        return self.experiment.participation.apart

    def updates(self, flat: NDArray[np.float32], round_: int, attempt: int) -> Iterator[Update]:
        for canary in np.flatnonzero(self.plan.inside_K & self._there(round_, attempt)):
            yield self._sent(int(canary), 1.0, flat, round_)

    def _there(self, round_: int, attempt: int) -> NDArray[np.bool_]:
        """Return which canaries take part in a round if they are in the run.

        Without Poisson samples these are all in rounds 1, 1 + b, 1 + 2 b, ..., as often as a client can.
        """
        if self.apart is not None:
            return np.full(len(self.plan), (round_ - 1) % self.apart == 0)
        again = f"/{attempt}" if attempt > 1 else ""
        drawn = self.noise.generator(f"canaries/cohort{again}", round_)
        return drawn.random(len(self.plan)) < self.experiment.participation.fraction

    def observe(self, before: NDArray[np.float32], after: NDArray[np.float32], round_: int) -> None:
        if weight := self._weight(round_):
            self.seen += np.float32(weight) * (after - before)

    def _weight(self, round_: int) -> float:
        if self.weights is not None:
            return float(self.weights[round_ - 1])
        return 1.0 if self.apart is None or strategy(self.experiment) else float((round_ - 1) % self.apart == 0)

    def scores(self) -> NDArray[np.float64]:
        released = self.layout.views(self.seen)
        return np.array([product(self.plan.direction(canary, released), released) for canary in range(len(self.plan))])


def likelihood_weights(made: Strategy) -> NDArray[np.float64]:
    """Return the weights of the changes of each round, in the best score of who was in rounds 1, 1 + b, 1 + 2 b, ...

    The noise of the rounds is M z with independent draws z, and its covariance K = M M^T. With u the indicator of these
    rounds, the likelihood ratio of u + M z to M z grows with u^T K^-1 y. M is what the strategy's own stream returns
    for unit vectors as draws. The largest weight is 1.

    Args:
        made: The matrix factorisation, with its number of rounds T and separation b.

    Returns:
        The weights, shape (T,).
    """
    draws, stream = count(), made.stream()
    units_P = 2 * made.rounds  # a tree draws once for each node that is completed

    def unit(level: int) -> NDArray[np.float64]:
        vector_P = np.zeros(units_P)
        vector_P[next(draws)] = 1.0
        return vector_P

    matrix_TP = np.stack([stream.step(unit) for _ in range(made.rounds)])
    inside_T = (np.arange(made.rounds) % made.separation == 0).astype(np.float64)
    weights_T = np.linalg.solve(matrix_TP @ matrix_TP.T, inside_T)
    return np.asarray(weights_T / np.abs(weights_T).max())
