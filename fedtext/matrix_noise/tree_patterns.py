"""The pattern of participations to which the nodes of a tree are most sensitive, exactly.

Participations at least b rounds apart change the sum of a node by their number in it. What is maximised is the sum of
the squares of these numbers over all complete nodes. Complete trees of one size have the same tables, so that one table
is made for each level:

``best[c][f, l]`` is the largest sum within a tree of s = 2^h rounds, its root included, for c participations in it, the
first of which has at least f rounds before it, and the last at least l rounds behind it; -inf if there are none. Two
halves with c_1 and c_2 of them join if the rounds x behind the last of the left one and those before the first of the
right one add up to b - 1 or more. The trees that N rounds complete stand side by side, and join in the same way.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedtext.matrix_noise.strategy import participations

_MOST = (
    200_000_000  # additions that are worth an exact number: a fraction of a second, which the ledger asks each round
)
_CALL = 3000  # additions that take as long as one call of numpy

Table = list[NDArray[np.float64]]


def affordable(rounds: int, separation: int) -> bool:
    """Return whether ``largest_square`` takes a fraction of a second."""
    halves = [1 << level for level in range(rounds.bit_length() - 1)]
    pairs = sum(participations(half, separation) ** 2 for half in halves)
    return separation * max(separation**2, _CALL) * pairs <= _MOST


@lru_cache(maxsize=4096)
def largest_square(rounds: int, separation: int) -> float:
    """Return the largest sum of squares over the complete nodes of a tree.

    Args:
        rounds: N.
        separation: b.
    """
    separation = min(separation, rounds)
    row: Table = [np.zeros((1, separation))]  # of the trees so far, by participations: rounds behind the last one
    for level in range(rounds.bit_length() - 1, -1, -1):
        if rounds >> level & 1:
            row = _joined(row, _table(level, separation), 1 << level)
    return float(max(each[0, 0] for each in row))


@lru_cache(maxsize=64)
def _table(level: int, separation: int) -> Table:
    if level == 0:
        one = np.full((separation, separation), -np.inf)
        one[0, 0] = 1
        return [np.zeros((separation, separation)), one]
    half, size = _table(level - 1, separation), 1 << level - 1
    whole = _joined(half, half, size)
    return [best_FL + count**2 for count, best_FL in enumerate(whole)]


def _joined(left: Table, right: Table, size: int) -> Table:
    """Return the table of two neighbours without nodes over both.

    Args:
        left: That of the left one; its first axis may have one entry, for f = 0.
        right: That of the right one.
        size: Rounds of the right one, and of the left one unless f is 0.
    """
    separation = right[0].shape[1]
    shorter = np.maximum(np.arange(separation) - size, 0)  # what is asked of a half if the other has no participation
    first = np.arange(left[0].shape[0])
    found: Table = []
    for count in range(len(left) + len(right) - 1):
        best_FL = np.full((len(first), separation), -np.inf)
        if count < len(left):
            best_FL = np.maximum(best_FL, left[count][:, shorter])
        if count < len(right):
            best_FL = np.maximum(best_FL, right[count][shorter[first]])
        for mine in range(max(1, count - len(right) + 1), min(count, len(left))):
            one, other = left[mine], right[count - mine]
            for behind in range(separation):
                before = separation - 1 - behind
                np.maximum(best_FL, one[:, behind, None] + other[before][None, :], out=best_FL)
        if np.isneginf(best_FL).all():  # nor are there patterns with more
            break
        found.append(best_FL)
    return found
