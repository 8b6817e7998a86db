"""Strategies as dense matrices, by running their streams, and sensitivities by trying all patterns."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedtext.matrix_noise import (
    Banded,
    Buffered,
    InverseBanded,
    Strategy,
    Tree,
    inverse_square_root,
    optimal_bands,
    optimal_buffers,
)


def noise_rows(strategy: Strategy) -> tuple[NDArray[np.float64], list[tuple[int, int]]]:
    """Return rounds x draws: how much of each draw is in each round's noise; and the (round, level) of each draw."""
    places = [(round_, level) for round_ in range(strategy.rounds) for level in range(strategy.rounds.bit_length())]
    stream, rows = strategy.stream(), []
    for round_ in range(strategy.rounds):

        def draw(level: int, round_: int = round_) -> NDArray[np.float64]:
            one = np.zeros(len(places))
            one[places.index((round_, level))] = 1
            return one

        rows.append(stream.step(draw).copy())
    found = np.array(rows)
    used = np.flatnonzero(np.abs(found).any(axis=0))
    return found[:, used], [places[place] for place in used]


def matrix(strategy: Strategy) -> NDArray[np.float64]:
    """Return C: of a tree from the nodes that its stream draws for, otherwise the inverse of what the stream does."""
    rows, places = noise_rows(strategy)
    if not isinstance(strategy, Tree):
        assert [level for _, level in places] == [0] * strategy.rounds
        return np.linalg.inv(rows)
    nodes = np.zeros((len(places), strategy.rounds))
    for node, (last, level) in enumerate(places):
        nodes[node, last + 1 - 2**level : last + 1] = 1
    return nodes


def patterns(rounds: int, separation: int, first: int = 0) -> Iterator[list[int]]:
    """Yield all lists of rounds that are at least so far apart."""
    yield []
    for start in range(first, rounds):
        for rest in patterns(rounds, separation, start + separation):
            yield [start, *rest]


def brute_force(c: NDArray[np.float64], separation: int) -> float:
    """Return the largest norm of a sum of columns over all patterns; products of columns must not be negative."""
    assert (c.T @ c > -1e-12).all()
    return max(float(np.linalg.norm(c[:, chosen].sum(axis=1))) for chosen in patterns(c.shape[1], separation))


def strategies(rounds: int, separation: int) -> dict[str, Strategy]:
    """Return one strategy of each kind."""
    bands = min(separation, 4)
    return {
        "tree": Tree(rounds, separation),
        "banded": Banded(rounds, separation, optimal_bands(rounds, separation, bands)),
        "banded max": Banded(rounds, separation, optimal_bands(rounds, separation, bands, "max")),
        "blt": Buffered(rounds, separation, *optimal_buffers(rounds, separation, 2)),
        "bisr": InverseBanded(rounds, separation, inverse_square_root(3)),
    }


KINDS = ("tree", "banded", "banded max", "blt", "bisr")
