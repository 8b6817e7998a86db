"""Tree aggregation: noise of the nodes of a binary tree over rounds (Kairouz et al. 2021, DP-FTRL).

A node of level h covers 2^h rounds, from a multiple of 2^h on, and is released when they are over: C has a row for each
node that is complete. The prefix sum of t rounds is that of the disjoint nodes that the binary digits of t name. A
node's noise is not its own alone: its children's sums are of the same rounds, so that their weighted mean has less
(Honaker 2015, estimation from below, which is the part of it that can be computed online).

Legend: P parameters.
"""

import numpy as np
from numpy.typing import NDArray

from fedtext.matrix_noise.strategy import Draw, Strategy, Stream, participations
from fedtext.matrix_noise.tree_patterns import affordable, largest_square


class Tree(Strategy):
    """The online Honaker estimator of a binary tree.

    A client's rounds change the sum of a node by as many updates as lie in it: the squared sensitivity is the largest
    sum over complete nodes of the squared number of its rounds in the node. It is computed by dynamic programming
    (tree_patterns.py), unless that would take long.

    Of N_h complete nodes of level h each has at most q = ceil(2^h / b) of its rounds, and together they have at most
    k = ceil(N_h 2^h / b); the sum of their squares is at most floor(k / q) q^2 + (k mod q)^2. If b is a power of two,
    the rounds 1, 1 + b, 1 + 2 b, ... reach this in all levels. Otherwise it is an upper bound.
    """

    def __init__(self, rounds: int, separation: int) -> None:
        super().__init__(rounds, separation)
        self.reached = separation & (separation - 1) == 0 or separation >= rounds
        self.exact = self.reached or affordable(rounds, separation)

    def sensitivity(self, rounds: int | None = None) -> float:
        there = self.rounds if rounds is None else rounds
        apart = min(self.separation, there)
        if self.exact and not self.reached:
            return float(np.sqrt(largest_square(there, apart)))
        squared = 0
        for size in _sizes(there):
            inside = participations(size, apart)
            together = participations(there // size * size, apart)
            squared += together // inside * inside**2 + (together % inside) ** 2
        return float(np.sqrt(squared))

    def alone(self) -> float:
        return float(np.sqrt(len(_sizes(self.rounds))))  # the first round is in a complete node of each level

    def variances(self) -> NDArray[np.float64]:
        rounds, found = np.arange(1, self.rounds + 1), np.zeros(self.rounds)
        for level, variance in enumerate(node_variances(len(_sizes(self.rounds)))):
            found += variance * (rounds >> level & 1)
        return found

    def stream(self) -> Stream:
        return _Nodes(len(_sizes(self.rounds)))


def node_variances(levels: int) -> list[float]:
    """Return the variance of the estimate of a node by level: V_0 = 1 and V_h = 2 V_(h-1) / (1 + 2 V_(h-1)).

    The node's own noise has variance 1, and the estimates of its two children together 2 V_(h-1), independent of it:
    weights proportional to the inverse variances are best. V_h = 1 / (2 - 2^-h).

    Args:
        levels: Number of levels.
    """
    found = [1.0]
    for _ in range(1, levels):
        found.append(2 * found[-1] / (1 + 2 * found[-1]))
    return found


def _sizes(rounds: int) -> list[int]:
    """Return the sizes of the nodes that are complete after this number of rounds."""
    return [1 << level for level in range(rounds.bit_length())]


class _Nodes(Stream):
    """The noise of prefix sums, of which each round gets the difference from the one before it."""

    def __init__(self, levels: int) -> None:
        self.weights = node_variances(levels)  # of a node's own noise: 2 V_(h-1) / (1 + 2 V_(h-1)), which is V_h
        self.nodes: list[tuple[int, NDArray[np.float64]]] = []  # level and noise, from the first rounds on
        self.before: NDArray[np.float64] | None = None

    def step(self, draw: Draw) -> NDArray[np.float64]:
        level, node_P = 0, draw(0)
        while self.nodes and self.nodes[-1][0] == level:
            _, left_P = self.nodes.pop()
            level += 1
            own = self.weights[level]
            node_P = own * draw(level) + (1 - own) * (left_P + node_P)
        self.nodes.append((level, node_P))
        total_P = np.sum([noise_P for _, noise_P in self.nodes], axis=0)
        change_P = total_P if self.before is None else total_P - self.before
        self.before = total_P
        return np.asarray(change_P)
