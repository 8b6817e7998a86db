"""Who shares keys with whom in a round: a regular graph on a random order, and what it withstands.

The clients of a round are placed on a circle in random order, and each is a neighbour of the k / 2 next ones on either
side (Bell et al. 2020, section 4). Among n clients of which c show the server all they have, and d do not answer,

- a round is not opened if for some client fewer than t of its k neighbours answer;
- an update is uncovered if t of the k neighbours of some client show their shares;
- more than the whole sum is seen if the clients that are left are not connected: then two runs of at least k / 2
  neighbours on the circle are all among the c + d.

Clients that ``participation.over_selection`` leaves late are among the d, beside those that drop out.

All chances are bounded by sums over clients, and over pairs of clients, of hypergeometric tails.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedtext.accounting.masks import HIDDEN, OPENED, Graph, graph
from fedtext.errors import UserError

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

_MORE = 200  # clients of a round beyond those that there are, among which enough are looked for


def withstands(experiment: "Experiment", clients: int) -> str:
    """Return in one sentence what rounds withstand; empty without masks.

    Args:
        experiment: The experiment.
        clients: Number of its clients.
    """
    config = experiment.server.secure_aggregation
    if not config or not config.masks:
        return ""
    participation = experiment.participation
    given = config.neighbors, config.threshold, config.colluding, config.dropping
    asked, times = participation.invited(clients), participation.over_selection
    left = participation.late(clients, asked)

    def rounds(of: int) -> Graph:
        return graph(of, *given, left if of == asked else of - int(of / times + 1e-9))

    made, about = rounds(asked), "about " if participation.sampling == "poisson" else ""
    away = f"{left} are late and {config.dropping:.0%} drop out" if left else f"{config.dropping:.0%} do not"
    lower = f"lower threshold{', over_selection' if left else ''} or dropping"
    opening, hiding = _opening(made, rounds, lower), _hiding(made, rounds)
    return (
        f"server.secure_aggregation: of {about}{asked} clients each shares its keys with {made.neighbors}, of whom "
        f"{made.threshold} have to answer; if {away}, {opening}; if {config.colluding:.0%} show the server all they "
        f"have as well, {hiding}"
    )


def check_late(experiment: "Experiment", clients: int) -> None:
    """Check that ``over_selection`` leaves as many clients as open a round, if no client drops out.

    Args:
        experiment: The experiment.
        clients: Number of its clients.

    Raises:
        UserError: No round could be opened.
    """
    config, asked = experiment.server.secure_aggregation, experiment.participation.invited(clients)
    left = experiment.participation.late(clients, asked)
    if not config or not config.masks or not left:
        return
    made = graph(asked, asked, config.threshold, 0.0, 0.0, left)
    if made.unopened == 1:
        raise UserError(
            f"participation.over_selection: a round waits for {asked - left} of {asked} clients, and with "
            f"server.secure_aggregation.threshold {config.threshold:g} more have to answer, "
            f"{made.threshold} of the {asked - 1} others of each: lower over_selection, or threshold"
        )


_Rounds = Callable[[int], Graph]  # the graph of rounds with this many clients


def _opening(made: Graph, rounds: _Rounds, lower: str) -> str:
    """Return whether rounds of a graph are opened. With all others as neighbours the chance is exact: 0 or 1."""
    if made.unopened == 0:
        return "every round is opened"
    if made.unopened < 1:
        return f"a round is not opened with a chance of at most {made.unopened:.2g}"
    every = made.neighbors == made.clients - 1
    enough = _enough(made, rounds, lambda larger: larger.unopened <= OPENED)
    return f"{'no round is' if every else 'a round may not be'} opened: {enough or lower}"


def _hiding(made: Graph, rounds: _Rounds) -> str:
    if made.uncovered == 0:
        return "it sees the sum alone"
    if made.uncovered < 1:
        return f"it sees more than the sum with a chance of at most {made.uncovered:.2g}"
    enough = _enough(made, rounds, lambda larger: larger.uncovered <= HIDDEN)
    return f"it may see more than the sum: {enough or 'raise neighbors or threshold, or lower colluding'}"


def _enough(made: Graph, rounds: _Rounds, holds: Callable[[Graph], bool]) -> str:
    """Return from how many clients of a round on a chance is as small as it should be; empty if none is found."""
    for clients in range(made.clients + 1, made.clients + _MORE):
        if holds(rounds(clients)):
            return f"it takes rounds of {clients} clients"
    return ""


def neighbors_of(members: Sequence[int], degree: int, rng: np.random.Generator) -> dict[int, list[int]]:
    """Draw the neighbours of each client of a round.

    Args:
        members: Ids of the clients.
        degree: Number of neighbours of each: even, or that of all others.
        rng: Source of the random order.

    Returns:
        The ids of each client's neighbours, ascending.
    """
    count = len(members)
    if degree >= count - 1:
        return {client: sorted(other for other in members if other != client) for client in members}
    order = [members[place] for place in rng.permutation(count)]
    around = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    return {order[p]: sorted(order[(p + step) % count] for step in around) for p in range(count)}
