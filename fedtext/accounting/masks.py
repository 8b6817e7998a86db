"""The chances that masks of secure aggregation fail in a round: that it cannot be opened, or more is seen than the sum.

``fedtext.secure.graph`` says who shares keys with whom, and why these are the events.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from fedtext.errors import UserError

OPENED, HIDDEN = 2.0**-20, 2.0**-40  # largest chances of failures if the number of neighbours is chosen
INSTALL = "server.secure_aggregation: scipy is not installed: pip install 'fedtext[encryption]'"


def counted(share: float, number: int) -> int:
    """Return how many a share of a number of clients is, rounded up.

    An error of rounding is not rounded up: 0.07 * 100 is more than 7 in floating point.

    Args:
        share: The share.
        number: The number of clients.
    """
    return math.ceil(round(share * number, 9))


@dataclass(frozen=True)
class Graph:
    """The dropouts and colluding clients that a number of neighbours withstands.

    Attributes:
        clients: Number n of clients of a round.
        neighbors: Number k of neighbours of each.
        threshold: Number t of them whose shares open a secret.
        unopened: A bound of the chance that a round cannot be opened.
        uncovered: A bound of the chance that more is seen than the sum.
    """

    clients: int
    neighbors: int
    threshold: int
    unopened: float
    uncovered: float


def needed(threshold: float, neighbors: int) -> int:
    """Return how many of a client's neighbours a share of them is, rounded up, and always more than half.

    Any two sets of this size then have a neighbour in common, and it gives a share of one secret alone.
    """
    return max(neighbors // 2 + 1, counted(threshold, neighbors))


@lru_cache(maxsize=256)
def graph(
    clients: int, neighbors: int | None, threshold: float, colluding: float, dropping: float, unawaited: int = 0
) -> Graph:
    """Return the graph of rounds with this many clients.

    Args:
        clients: Number n of clients, at least 2.
        neighbors: Number of neighbours of each. It is made even, and all others if there are no more. None: the
            smallest number whose chances are at most ``OPENED`` and ``HIDDEN``, or all others.
        threshold: Share of a client's neighbours that open its secrets.
        colluding: Largest share of clients that show the server all they have.
        dropping: Largest share of clients that drop out.
        unawaited: Number of clients that the round does not wait for (``Participation.late``).
    """
    bad, away = counted(colluding, clients), min(clients, unawaited + counted(dropping, clients))
    if neighbors is not None:
        return _withstands(clients, neighbors, threshold, bad, away)
    for even in range(2, clients, 2):
        found = _withstands(clients, even, threshold, bad, away)
        if found.unopened <= OPENED and found.uncovered <= HIDDEN:
            return found
    return _withstands(clients, clients, threshold, bad, away)


def _withstands(clients: int, neighbors: int, threshold: float, bad: int, away: int) -> Graph:
    try:
        from scipy.stats import hypergeom
    except ImportError as error:
        raise UserError(INSTALL) from error
    even = neighbors + neighbors % 2
    degree = even if even < clients - 1 else clients - 1
    least = needed(threshold, degree)
    others = clients - 1
    unopened = clients * float(hypergeom.sf(degree - least, others, min(away, others), degree))
    shown = clients * float(hypergeom.sf(least - 1, others, min(bad, others), degree))
    apart = 0.0
    if degree < others:
        pairs = clients * (clients - 1) / 2
        apart = pairs * float(hypergeom.sf(degree - 1, clients, min(bad + away, clients), degree))
    return Graph(clients, degree, least, min(1.0, unopened), min(1.0, shown + apart))
