"""Canaries under the server's noise: half of them are clients, whom the released parameters are searched for.

Legend: T rounds, P rounds that draws of noise are told apart by, N coordinates, K canaries.
"""

from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np
from numpy.typing import NDArray

from fedtext.canaries.base import PREFIX, CanaryClients
from fedtext.canaries.plan import Plan, product
from fedtext.layout import Layout
from fedtext.ledger.central import composed, strategy
from fedtext.matrix_noise import Strategy
from fedtext.messages import Update
from fedtext.state.noise_key import NoiseKey

_SUM = PREFIX + "sum"
_LONGEST = 2048  # rounds whose covariance is inverted


class CentralCanaries(CanaryClients):
    """Canaries that take part like clients: in Poisson samples, or as often as a client may.

    The score of a canary is the product of its direction with a weighted sum of the changes of the shared parameters.
    If the rounds of a canary are not secret, the weights are those of the likelihood ratio under all rounds' noise.

    Args:
        plan: Which canaries there are.
        noise: The run's key.
        layout: The shared tensors.
        withheld: Rows of the table that no client sends; None: there are none.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.
    """

    def __init__(
        self,
        plan: Plan,
        noise: NoiseKey,
        layout: Layout,
        withheld: NDArray[np.int64] | None,
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        super().__init__(plan, noise, layout, withheld)
        self.fraction, _ = composed(self.experiment, 1)
        self.apart = self.experiment.participation.apart
        made = strategy(self.experiment)
        self.weights_T = likelihood_weights(made) if made and made.rounds <= _LONGEST else None
        begun = np.zeros(layout.size, np.float32)
        self.sum_N = np.array((kept or {}).get(_SUM, begun))

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
        drawn = self.noise.paired(self.experiment.seed, f"canaries/cohort{again}", round_)
        return drawn.random(len(self.plan)) < self.fraction

    def observe(self, before: NDArray[np.float32], after: NDArray[np.float32], round_: int) -> None:
        if weight := self._weight(round_):
            self.sum_N += np.float32(weight) * (after - before)

    def _weight(self, round_: int) -> float:
        if self.weights_T is not None:
            return float(self.weights_T[round_ - 1])
        return 1.0 if self.apart is None or strategy(self.experiment) else float((round_ - 1) % self.apart == 0)

    def scores(self) -> NDArray[np.float64]:
        released = self.layout.views(self.sum_N)
        return np.array([product(self.plan.direction(canary, released), released) for canary in range(len(self.plan))])

    def to_keep(self) -> Mapping[str, NDArray[np.float32]]:
        return {_SUM: self.sum_N}


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
