"""Randomised response (Warner 1965; RR-LDP paper, equations 4 and 5)."""

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.accounting import composition, shuffle
from fedtext.accounting.entry import Bound, Entry, Sent
from fedtext.mechanisms.base import Follower, Mechanism, Step, Tensors
from fedtext.mechanisms.draws import bernoulli
from fedtext.mechanisms.quantize import Quantize


class RandomizedResponse(Follower):
    """Randomised response (Warner 1965; RR-LDP paper): flips each bit with a known probability.

    Each bit is flipped with probability 1 / (1 + e^epsilon), which makes it epsilon-locally differentially private. An
    update has one bit for each coordinate, and the epsilons of all of them add up.

    The server's estimate is unbiased. With c = (e^epsilon - 1) / (e^epsilon + 1) the expectation of a sent bit is
    1 / (1 + e^epsilon) + c bit, so the server divides by c; equation 5 of the paper multiplies, which is not a
    correction. After ``quantize`` a coordinate v is decoded as q / c or -q / c, with variance q^2 / c^2 - v^2.
    """

    name: Literal["randomized_response"] = "randomized_response"
    epsilon: float = Field(
        1.0, gt=0, le=16, description="epsilon of each bit; beyond 16 flips would be rarer than the draws resolve"
    )
    randomises = True
    bits = True
    follows = "quantize"

    @property
    def flip(self) -> float:
        """The probability of a flip."""
        return 1 / (1 + math.exp(self.epsilon))

    def apply(self, delta: Tensors, received: Mapping[str, NDArray[np.float32]], rng: np.random.Generator) -> Tensors:
        flip = self.flip
        signs = {name: np.where(bits, np.float32(0.5), np.float32(-0.5)) for name, bits in delta.items()}
        return {name: bernoulli(sign, 1 - 2 * flip, flip, rng) for name, sign in signs.items()}

    def behind(self, before: Mechanism) -> Step:
        assert isinstance(before, Quantize)
        return lambda delta, received, rng: before.draw(delta, self.flip, rng)

    def restore(self, sent: Tensors, received: Mapping[str, NDArray[np.float32]]) -> Tensors:
        flip, c = np.float32(self.flip), np.float32(math.tanh(self.epsilon / 2))
        return {name: (tensor - flip) / c for name, tensor in sent.items()}

    def guarantee(self, before: Bound, sent: Sent) -> list[Entry]:
        """Pure differential privacy for each bit. A client's texts may change all bits, so their epsilons add up."""
        name, epsilon, count = self.name, self.epsilon, sent.coordinates
        every = count * sent.rounds
        rests = "each bit is flipped by a draw of its own"
        over = f"sum over {count:,} coordinates"
        each, run = composition.basic(epsilon, count), composition.basic(epsilon, every)
        best = composition.optimal(epsilon, every, sent.delta)
        return [
            Entry(name, "coordinate and round", epsilon, 0.0, "randomised response", rests),
            Entry(name, "client and round", each, 0.0, over, rests),
            Entry(name, "run", run, 0.0, f"{over} and {sent.rounds} rounds", rests),
            Entry(name, "run", best, sent.delta, "optimal composition", rests),
        ]

    def shuffled(self, sent: Sent, clients: int) -> Entry:
        """The privacy blanket of the other clients' bits (Balle et al. 2019), for all of a client's bits together."""
        epsilon = shuffle.shuffled(self.epsilon, clients, sent.coordinates * sent.rounds, sent.delta)
        how = f"privacy blanket of {clients} clients, {sent.coordinates:,} coordinates and {sent.rounds} rounds"
        return Entry(self.name, "run", epsilon, sent.delta, how, "each bit is flipped by a draw of its own")

    def sentences(self, before: Bound, hidden: bool) -> list[str]:
        return [
            f"randomised response: epsilon = {self.epsilon:g} for each coordinate alone; over a whole update, "
            "and over rounds, these epsilons add up"
        ]
